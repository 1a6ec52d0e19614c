"""Credentials that outlive a process: in a file where there is no keyring, whoever writes at the same time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend

from tests.client.auth.guarded import SECRET
from tests.client.running import run
from tests.client.scripted import LIMIT_S
from tieline.client.credentials import Bearer, OAuthToken, TokenSet
from tieline.client.saved import Login, SavedAgent, SavedCredentials, SavedFault

ORIGIN = "https://agents.example"
TOKENS = TokenSet("access", expires_at=5.0, refresh_token="refresh", scopes=("a",))
DEVICE = Login("device-code", "oauth", client_id="desktop", token_url="https://login.example/t", tokens=TOKENS)

WITHOUT_KEYRING = """
import sys
sys.modules["keyring"] = None  # as where the extra is not installed
from pathlib import Path
from tieline.client.saved import Login, SavedAgent, SavedCredentials
saved = SavedCredentials(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    saved.save(SavedAgent(f"https://{sys.argv[2]}-{number}.example", "", (Login("bearer", secret="open-sesame"),)))
print(saved.where("https://any.example"))
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedCredentials:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return SavedCredentials(tmp_path / "config")


def test_what_is_saved_comes_back_as_credentials(saved: SavedCredentials) -> None:
    assert saved.load(ORIGIN) is None
    saved.save(SavedAgent(ORIGIN, "Echo", (Login("bearer", "b", SECRET), DEVICE)))
    agent = saved.load(ORIGIN)
    assert agent is not None
    bearer, device = (login.credential() for login in agent.logins)
    assert bearer == Bearer(SECRET, "b")
    assert isinstance(device, OAuthToken)
    assert (device.access_token, device.refresh_token, device.expires_at) == ("access", "refresh", 5.0)
    assert saved.origins() == [ORIGIN]
    assert saved.remove(ORIGIN)
    assert not saved.remove(ORIGIN)
    assert SECRET not in saved.path.read_text()
    assert SECRET not in repr(agent)
    assert "refresh" not in repr(agent)


def test_processes_that_save_at_once_lose_nothing_and_need_no_keyring(saved: SavedCredentials) -> None:
    folder = saved.path.parent
    command = [sys.executable, "-c", WITHOUT_KEYRING, str(folder)]
    runs = [subprocess.Popen([*command, name, "10"], stdout=subprocess.PIPE, text=True) for name in ("a", "b", "c")]
    for each in runs:
        told, _ = each.communicate(timeout=60)
        assert (each.returncode, told.strip()) == (0, str(saved.path))
    assert len(saved.origins()) == 30
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert [each.name for each in folder.iterdir() if "credentials-" in each.name] == [], "nothing is left behind"


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_written_through(
    saved: SavedCredentials, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text('{"version": 1, "agents": {}}')
    target.chmod(0o600)
    saved.path.parent.mkdir()
    saved.path.symlink_to(target)
    saved.save(SavedAgent(ORIGIN, "", (DEVICE,)))
    assert not saved.path.is_symlink()
    assert "refresh" not in target.read_text()


def test_tokens_are_renewed_where_they_are_kept_and_not_brought_back_behind_a_logout(saved: SavedCredentials) -> None:
    saved.save(SavedAgent(ORIGIN, "", (DEVICE, Login("api-key", "key", SECRET))))
    kept = saved.kept(ORIGIN, "oauth")
    assert kept.load() == TOKENS
    newer = TokenSet("newer", refresh_token="next")
    kept.save(newer)
    agent = saved.load(ORIGIN)
    assert agent is not None
    assert [login.tokens for login in agent.logins] == [newer, None]
    saved.remove(ORIGIN)
    kept.save(TokenSet("late"))
    assert saved.load(ORIGIN) is None
    assert kept.load() is None


def test_a_logout_between_a_renewal_and_its_writing_is_the_last_word(saved: SavedCredentials) -> None:
    saved.save(SavedAgent(ORIGIN, "", (DEVICE,)))
    with open(saved.path.parent / "credentials.lock", "ab") as lock, ThreadPoolExecutor(1) as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        renewal = other.submit(saved.kept(ORIGIN, "oauth").save, TokenSet("late"))
        wait_until(lambda: any(" -> " in line and f":{os.fstat(lock.fileno()).st_ino} " in line for line in locks()))
        saved.path.write_text('{"version": 1, "agents": {}}')  # as a logout leaves it
        fcntl.flock(lock, fcntl.LOCK_UN)
        renewal.result(timeout=LIMIT_S)
    assert saved.origins() == []
    assert "late" not in saved.path.read_text()


def locks() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class _SystemFault(Exception):
    """As the errors of D-Bus are, which are no KeyringError."""


class _Gone(KeyringBackend):
    """A keyring whose service has gone away since it was found."""

    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        raise _SystemFault

    def set_password(self, service: str, username: str, password: str) -> None:
        raise _SystemFault

    def delete_password(self, service: str, username: str) -> None:
        raise _SystemFault


def test_whatever_a_keyring_raises_is_a_fault_of_ours_and_keeps_nobody_from_the_file(saved: SavedCredentials) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(_Gone())  # type: ignore[no-untyped-call]
    try:
        assert saved.save(SavedAgent(ORIGIN, "", (DEVICE,))) == str(saved.path)
        agent = saved.load(ORIGIN)
        assert agent is not None
        saved.path.write_text(json.dumps({"version": 1, "agents": {ORIGIN: {"keyring": True}}}))
        for call in (saved.load, saved.remove):
            with pytest.raises(SavedFault, match=f"keeps for {ORIGIN}"):
                call(ORIGIN)
    finally:
        keyring.set_keyring(before)


OTHER = """
import fcntl, sys
file = open(sys.argv[1], "ab")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("busy", flush=True)
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
"""


def test_one_process_at_a_time_renews(saved: SavedCredentials) -> None:
    async def test() -> None:
        saved.save(SavedAgent(ORIGIN, "", (DEVICE,)))
        async with saved.kept(ORIGIN, "oauth").held():
            (lock,) = [each for each in saved.path.parent.iterdir() if each.name.startswith("renewal-")]
            command = [sys.executable, "-c", OTHER, str(lock)]
            other = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            assert other.stdout is not None
            assert await other.stdout.readline() == b"busy\n"
        assert await other.stdout.readline() == b"held\n"
        assert await other.wait() == 0

    run(test())


def test_what_cannot_be_written_is_said_with_its_place(saved: SavedCredentials, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = SavedCredentials(tmp_path / "file" / "config")
    with pytest.raises(SavedFault, match="file"):
        blocked.save(SavedAgent(ORIGIN, "", (DEVICE,)))
