"""This process among those that share a store: who is alive, what has become of the tasks of the dead, and the post.

Each replica says every few seconds that it is alive, by counting in the store. One whose count stands still for most of
the lease, by the clock of the one who looks, is struck off, and what it was at work on is taken over: no two clocks are
ever compared, and a clock that jumps changes nothing. While the store does not answer, nobody is struck off.

Who follows a task that is at work elsewhere asks for news of it, and reads the news from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec

from tieline.engine.letters import (
    Answer,
    Cancel,
    Elsewhere,
    Follow,
    Hear,
    Letter,
    News,
    Question,
    Rehook,
    Unfollow,
    Wait,
    pack,
    refusal,
    unpack,
)
from tieline.engine.pulse import Pulse
from tieline.errors import InternalError, Unavailable
from tieline.stores.base import SharedStore, StoreError

if TYPE_CHECKING:
    from tieline.engine.log import TaskLog
    from tieline.engine.remote import Remote
    from tieline.engine.service import Service

__all__ = ["Gone", "LEAST_LEASE_S", "Replica"]

log = logging.getLogger("tieline.engine")

Key = tuple[str, str]  # scope and task id

LEAST_LEASE_S: Final = 5.0  # with less a busy machine would take its own processes for dead
_AGAIN_S: Final = 5.0  # a question without an answer, and a task without news, are asked for again
_ANSWERS: Final = 2000  # that are kept, in case one was lost


class Gone(Exception):
    """The replica that was asked is not alive, or not at work on the task any more."""


class Replica:
    """This process's part in a store that it shares. Services of one store have one Replica."""

    _known: Final[WeakKeyDictionary[SharedStore, Replica]] = WeakKeyDictionary()

    def __init__(self, store: SharedStore, lease_s: float) -> None:
        self.store = store
        self.lease_s = max(lease_s, LEAST_LEASE_S)
        self.beat_s = max(1.0, self.lease_s / 5)
        self.alive: frozenset[str] = frozenset()
        self._services: list[Service] = []
        self._beating = asyncio.Lock()
        self._begun = 0  # how many beats were begun
        self._looked = 0  # the last of them that was answered
        self._beaten = float("-inf")  # loop time of the last beat that was answered
        self._beats = 0  # how often this replica has said that it is alive since it was struck off last
        self._seen: dict[str, tuple[int, float]] = {}  # of each other one: its count, and since when it stands
        self._followers: dict[Key, set[str]] = {}
        self._outbox: dict[str, dict[Key, None]] = {}  # news, by reader
        self._questions: dict[int, tuple[str, asyncio.Future[Answer]]] = {}
        self._number = 0
        self._answers: OrderedDict[tuple[str, int], Answer | None] = OrderedDict()  # None is being worked on
        self._living: asyncio.Task[None] | None = None
        self._pulse = Pulse(store, self.beat_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._adopting = False

    @classmethod
    def of(cls, store: SharedStore, lease_s: float) -> Replica:
        """The one of this store; made if there is none."""
        found = cls._known.get(store)
        if found is None:
            found = cls._known[store] = cls(store, lease_s)
        return found

    @property
    def id(self) -> str:
        return self.store.replica

    @property
    def is_heard(self) -> bool:
        """Whether this replica has been able to say that it is alive within the lease."""
        return asyncio.get_running_loop().time() - self._beaten < self.lease_s

    # --- life ---------------------------------------------------------------------------------------------------------

    async def join(self, service: Service) -> int:
        """Open the store for a service; returns what `open` does. Raises StoreError."""
        if not self._services:
            self.store.listen(self._read, self._gap)
        newest = await self.store.open()
        if service not in self._services:
            self._services.append(service)
        if self._living is None:
            await self._beat()
            self._living = asyncio.ensure_future(self._live())
            self._pulse.start()
        return newest

    async def leave(self, service: Service) -> None:
        """A service has stopped; with the last one this replica does, too."""
        if service in self._services:
            self._services.remove(service)
        if self._services:
            return
        living, self._living = self._living, None
        await self._pulse.stop()
        left = [task for task in (living, *self._tasks) if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for _, future in self._questions.values():
            if not future.done():
                future.set_exception(Gone())
        self._known.pop(self.store, None)  # who opens the store again begins anew

    def _begin(self, work: asyncio.Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    async def _beat(self) -> dict[str, int]:
        async with self._beating:  # one at a time: an answer that came late would look as if this one had been buried
            return await self._beat_once()

    async def _beat_once(self) -> dict[str, int]:
        self._begun += 1
        number = self._begun
        beats = dict(await self.store.beat())
        self._looked = number
        self._beaten = asyncio.get_running_loop().time()
        self._pulse.felt()
        mine = beats.get(self.store.replica, 0)
        struck_off = mine <= self._beats
        self._beats = mine
        self.alive = frozenset(beats)
        if struck_off:
            log.error(
                "this replica was taken for dead, or its store was emptied: looking which tasks are still its own"
            )
            for service in self._services:
                self._begin(asyncio.ensure_future(service.check_owned()))
        return beats

    async def is_alive(self, replica: str) -> bool:
        """Whether a replica has not been struck off. Raises InternalError when the store does not say."""
        if replica not in self.alive:
            begun = self._begun
            try:
                async with self._beating:
                    if self._looked <= begun:  # else another one who asks has looked since
                        await self._beat_once()
            except StoreError as error:
                log.error("%s", error)
                raise Unavailable.without_store() from error
        return replica in self.alive

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(self.beat_s)
            began = loop.time()
            try:
                beats = await self._beat()
                now = loop.time()
                if now - last > 2 * self.beat_s:
                    self._seen.clear()  # this process or the store stood still: so may the others have done
                last = now
                await self._look(beats, now)
            except StoreError as error:
                log.error("this replica cannot say that it is alive: %s", error)
                self._seen.clear()
                last = loop.time()
            except Exception:  # whatever it is, it must not be the end of this replica
                log.exception("the look at other replicas failed")
            self._watch(began)

    async def _look(self, beats: dict[str, int], now: float) -> None:
        """Strike off who has stood still, and take over what nobody is at work on."""
        patience_s = self.lease_s - 2 * self.beat_s
        self._seen = {
            replica: seen if (seen := self._seen.get(replica)) is not None and seen[0] == count else (count, now)
            for replica, count in beats.items()
            if replica != self.id
        }
        for replica, (count, since) in list(self._seen.items()):
            if now - since >= patience_s and await self.store.bury(replica, count):
                log.warning("replica %s is gone: its tasks are taken over", replica)
                self.alive -= {replica}
        for replica, future in list(self._questions.values()):
            if replica not in self.alive and not future.done():
                future.set_exception(Gone())
        for key, followers in list(self._followers.items()):
            followers &= self.alive | {self.id}
            if not followers:
                del self._followers[key]
        if not self._adopting:
            self._adopting = True
            self._begin(asyncio.ensure_future(self._adopt()))

    async def _adopt(self) -> None:
        try:
            for service in list(self._services):
                await service.adopt()
        except (StoreError, InternalError) as error:
            log.error("what nobody is at work on cannot be taken over yet: %s", error)
        except Exception:  # as in _live
            log.exception("what nobody is at work on cannot be taken over")
        finally:
            self._adopting = False

    def _watch(self, now: float) -> None:
        """Look after what is followed here: its news may be lost, its replica dead."""
        for service in self._services:
            for remote in list(service.remotes.values()):
                if remote.owner not in self.alive:
                    remote.look()
                elif now - remote.heard_at > _AGAIN_S:
                    self.follow(remote)

    # --- news ---------------------------------------------------------------------------------------------------------

    def follow(self, remote: Remote) -> None:
        """Have news of a task told here."""
        remote.heard_at = remote.loop.time()
        if remote.owner == self.id:
            self._followers.setdefault((remote.scope, remote.task_id), set()).add(self.id)
            remote.news()
        elif remote.owner:
            self._post(remote.owner, [Follow(remote.scope, remote.task_id, self.id, remote.published)])

    def unfollow(self, remote: Remote) -> None:
        if remote.owner == self.id:
            self._forget_follower((remote.scope, remote.task_id), self.id)
        elif remote.owner and not remote.closed:
            self._post(remote.owner, [Unfollow(remote.scope, remote.task_id, self.id)])

    def published(self, run: TaskLog) -> None:
        """A run of this replica has published something: tell those who follow it elsewhere."""
        key = (run.scope, run.task_id)
        followers = self._followers.get(key)
        if not followers:
            return
        if run.closed:
            del self._followers[key]
        if not self._outbox:
            run.loop.call_soon(self._send_news)
        for replica in followers:
            self._outbox.setdefault(replica, {})[key] = None

    def left(self, run: TaskLog) -> None:
        """A run of this replica has been let go: who follows it has to look where it is."""
        key = (run.scope, run.task_id)
        for replica in self._followers.pop(key, ()):
            if replica == self.id:
                self._tell_remote(Elsewhere(*key))
            else:
                self._post(replica, [Elsewhere(*key)])

    def announce(self, tasks: Iterable[Key]) -> None:
        """These tasks are at work here from now on: whoever follows one anywhere has to know."""
        letters = [Elsewhere(*key) for key in tasks]
        if not letters:
            return
        for replica in self.alive - {self.id}:
            self._post(replica, letters)
        for letter in letters:
            self._tell_remote(letter)

    def tell_all(self, letter: Letter) -> None:
        """Send a letter to every other replica."""
        for replica in self.alive - {self.id}:
            self._post(replica, [letter])

    def _send_news(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for replica, keys in outbox.items():
            if replica == self.id:
                for key in keys:
                    self._tell_remote(News(*key))
            else:
                self._post(replica, [News(*key) for key in keys])

    def _forget_follower(self, key: Key, replica: str) -> None:
        followers = self._followers.get(key)
        if followers is not None:
            followers.discard(replica)
            if not followers:
                del self._followers[key]

    # --- questions ----------------------------------------------------------------------------------------------------

    async def ask(self, replica: str, key: Key, what: Hear | Cancel | Wait, *, limit_s: float | None) -> Answer:
        """Have another replica do something with a task of its own, and wait for what comes of it.

        Raises:
            Gone: it is not alive, or not at work on the task (any more). Whether it has heard is not known then.
            InternalError: it does not answer within `limit_s`, or the store does not take letters.
        """
        self._number += 1
        number = self._number
        loop = asyncio.get_running_loop()
        until = None if limit_s is None else loop.time() + limit_s
        future: asyncio.Future[Answer] = loop.create_future()
        self._questions[number] = (replica, future)
        letter = pack(Question(*key, self.id, number, what))
        try:
            while True:
                # Shielded: it is the future of all who send in this turn, and a caller that leaves ends its own wait.
                await asyncio.shield(self.store.post(replica, [letter]))
                await asyncio.wait([future], timeout=_AGAIN_S)
                if future.done():
                    answer = future.result()
                    if answer.elsewhere:
                        raise Gone
                    return answer
                if not await self.is_alive(replica):
                    raise Gone
                if until is not None and loop.time() > until:
                    raise InternalError("The server that is at work on this task does not answer. Try again later.")
        except StoreError as error:
            log.error("%s", error)
            raise Unavailable.without_store() from error
        finally:
            del self._questions[number]
            if future.done() and not future.cancelled():
                future.exception()  # it was looked at
            future.cancel()

    def _serve(self, question: Question) -> None:
        """Answer a question; one that was asked before gets the answer that it got."""
        mark = (question.replica, question.number)
        if mark in self._answers:
            answer = self._answers[mark]
            if answer is not None:
                self._post(question.replica, [answer])
            return
        self._answers[mark] = None
        for old in list(self._answers) if len(self._answers) > 2 * _ANSWERS else ():
            if len(self._answers) > _ANSWERS and self._answers[old] is not None:  # one at work stays
                del self._answers[old]
        self._begin(asyncio.ensure_future(self._answer(question)))

    async def _answer(self, question: Question) -> None:
        service = self._service_of(question.scope)
        mark = (question.replica, question.number)
        if service is None:
            answer = Answer(question.scope, question.task_id, question.number, elsewhere=True)
        else:
            try:
                answer = await service.answer(question)
            except asyncio.CancelledError:
                self._answers.pop(mark, None)
                raise
            except Exception:  # the boundary of a question: who asks must not wait for what a bug has cut
                log.exception("a question of another replica could not be answered")
                answer = Answer(question.scope, question.task_id, question.number, error=refusal(InternalError()))
        self._answers[mark] = answer
        self._answers.move_to_end(mark)
        self._post(question.replica, [answer])

    # --- the post -----------------------------------------------------------------------------------------------------

    def _post(self, replica: str, letters: Iterable[Letter]) -> None:
        try:
            self.store.post(replica, [pack(letter) for letter in letters]).add_done_callback(_note_failure)
        except StoreError as error:
            log.warning("a letter to another replica is lost: %s", error)

    def _read(self, body: bytes) -> None:
        try:
            letter = unpack(body)
        except msgspec.MsgspecError:
            log.warning("a letter of another replica cannot be read: do all run the same version of tieline?")
            return
        if isinstance(letter, Question):
            self._serve(letter)
        elif isinstance(letter, Answer):
            asked = self._questions.get(letter.number)
            if asked is not None and not asked[1].done():
                asked[1].set_result(letter)
        elif isinstance(letter, Follow):
            self._take_follower(letter)
        elif isinstance(letter, Unfollow):
            self._forget_follower((letter.scope, letter.task_id), letter.replica)
        elif isinstance(letter, Rehook):
            service = self._service_of(letter.scope)
            if service is not None and service.webhooks is not None:
                self._begin(asyncio.ensure_future(service.webhooks.changed(letter.scope, letter.task_id)))
        else:
            self._tell_remote(letter)

    def _take_follower(self, letter: Follow) -> None:
        service = self._service_of(letter.scope)
        run = None if service is None else service.runs.get((letter.scope, letter.task_id))
        if run is None:
            self._post(letter.replica, [Elsewhere(letter.scope, letter.task_id)])
            return
        if not run.closed:
            self._followers.setdefault((letter.scope, letter.task_id), set()).add(letter.replica)
        if run.published != letter.published:
            self._post(letter.replica, [News(letter.scope, letter.task_id)])

    def _tell_remote(self, letter: News | Elsewhere) -> None:
        service = self._service_of(letter.scope)
        remote = None if service is None else service.remotes.get((letter.scope, letter.task_id))
        if remote is None:
            return
        if isinstance(letter, News):
            remote.news()
        else:
            remote.look()

    def _gap(self) -> None:
        """Letters may have been lost: look at everything that is followed."""
        for service in self._services:
            for remote in list(service.remotes.values()):
                remote.news()
                self.follow(remote)
            if service.webhooks is not None:
                self._begin(asyncio.ensure_future(service.webhooks.check_owned()))

    def _service_of(self, scope: str) -> Service | None:
        for service in self._services:
            if scope.startswith(service.scope_prefix):
                return service
        return None


def _note_failure(posted: asyncio.Future[object]) -> None:
    if not posted.cancelled() and (error := posted.exception()) is not None:
        log.warning("a letter to another replica is lost: %s", error)
