"""The tables of a PostgreSQL store, and the statements that use them. `{s}` stands for the schema."""

from __future__ import annotations

from typing import Final

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "Statements"]

MIGRATIONS: Final[tuple[str, ...]] = (
    # Keys of callers' (scope, id, context) are bytes of any length: digests of them are what is looked up by.
    # What changes with every chunk of a stream (version, mark) is in no index, so that the row is updated in place,
    # and stands last: what is the same before it is not logged once more.
    """
CREATE TABLE {s}.tasks(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL,
    scope_key bytea NOT NULL,
    context_key bytea NOT NULL,
    scope bytea NOT NULL,
    id bytea NOT NULL,
    context bytea NOT NULL,
    snapshot bytea NOT NULL,
    snapshot_version bigint NOT NULL,
    owner text,
    state text NOT NULL,
    updated bigint NOT NULL,
    version bigint NOT NULL,
    mark bytea
) WITH (fillfactor = 70);
ALTER TABLE {s}.tasks ALTER COLUMN snapshot SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX tasks_key ON {s}.tasks(key);
CREATE INDEX tasks_scope ON {s}.tasks(scope_key, updated);
CREATE INDEX tasks_context ON {s}.tasks(context_key, updated);
CREATE INDEX tasks_at_work ON {s}.tasks(number) WHERE state IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING');
CREATE INDEX tasks_ended ON {s}.tasks(state, updated) WHERE state IN
    ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED');
CREATE TABLE {s}.log(
    task bigint NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(task, last)
);
CREATE TABLE {s}.messages(
    key bytea PRIMARY KEY,
    task bytea NOT NULL,
    reply bytea,
    replica text NOT NULL,
    at bigint NOT NULL
);
CREATE INDEX messages_at ON {s}.messages(at);
CREATE TABLE {s}.replicas(id text PRIMARY KEY, beats bigint NOT NULL);
CREATE TABLE {s}.letters(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    replica text NOT NULL,
    body bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
""",
    # A webhook is finished when its task has ended and all of it was delivered, and is looked for no more then. It is
    # taskless if its task was not there when that was last looked at.
    """
CREATE TABLE {s}.webhooks(
    key bytea PRIMARY KEY,
    task_key bytea NOT NULL,
    scope bytea NOT NULL,
    task bytea NOT NULL,
    id bytea NOT NULL,
    config bytea NOT NULL,
    version text NOT NULL,
    created bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint,
    reason bytea NOT NULL,
    taskless boolean NOT NULL,
    finished boolean NOT NULL,
    owner text,
    failing bigint,
    after bigint NOT NULL,
    mark bytea
) WITH (fillfactor = 70);
CREATE INDEX webhooks_task ON {s}.webhooks(task_key);
CREATE INDEX webhooks_open ON {s}.webhooks(created) WHERE dead IS NULL AND NOT finished;
CREATE INDEX webhooks_dead ON {s}.webhooks(dead) WHERE dead IS NOT NULL;
CREATE INDEX webhooks_taskless ON {s}.webhooks(created) WHERE taskless;
""",
)
SCHEMA_VERSION: Final = len(MIGRATIONS)

_COLUMNS = "scope, id, context, state, updated, version, snapshot, snapshot_version, owner"
_ENDED = "('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED')"
_AT_WORK = "('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING')"
_WEBHOOK = "scope, task, id, config, version, after, created, owner, failing, failed, dead, reason"
_OUTCOME_BYTES = 120  # what an outcome takes beside the reply


class Statements:
    """The statements for one schema."""

    def __init__(self, schema: str) -> None:
        s = self._schema = f'"{schema}"'
        self.has_schema = f"SELECT to_regnamespace('{s}') IS NOT NULL"
        self.make_schema = f"CREATE SCHEMA {s}"
        self.make_meta = f"CREATE TABLE IF NOT EXISTS {s}.meta(version integer NOT NULL)"
        self.version = f"SELECT max(version) FROM {s}.meta"
        self.set_version = f"INSERT INTO {s}.meta VALUES(%s)"
        self.migrations = [migration.replace("{s}", s) for migration in MIGRATIONS]

        # Everything that is written in one turn, as one statement: one round trip and one commit.
        self.write = f"""
WITH a AS (
    SELECT * FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[],
                         %b::int8[], %b::int8[], %b::int8[], %b::bytea[], %b::bytea[])
    AS a(key, scope_key, context_key, scope, id, context, state, updated, after, version, snapshot, body)
), r AS (
    SELECT unnest(%b::bytea[]) AS key
), made AS (
    INSERT INTO {s}.tasks(key, scope_key, context_key, scope, id, context, state, updated, version, snapshot,
                          snapshot_version, owner, mark)
    SELECT key, scope_key, context_key, scope, id, context, state, updated, version, snapshot, version,
           CASE WHEN state IN {_ENDED} OR key IN (SELECT key FROM r) THEN NULL ELSE %b END, %b
    FROM a WHERE after = 0
    ON CONFLICT (key) DO NOTHING RETURNING number, key
), changed AS (
    UPDATE {s}.tasks t SET
        state = a.state, updated = a.updated, version = a.version, snapshot = coalesce(a.snapshot, t.snapshot),
        snapshot_version = CASE WHEN a.snapshot IS NULL THEN t.snapshot_version ELSE a.version END,
        owner = CASE WHEN a.state IN {_ENDED} OR a.key IN (SELECT key FROM r) THEN NULL ELSE t.owner END, mark = %b
    FROM a WHERE a.after > 0 AND t.key = a.key AND t.version = a.after AND t.owner = %b
    RETURNING t.number, t.key
), done AS (
    SELECT number, key FROM made UNION ALL SELECT number, key FROM changed
), logged AS (
    INSERT INTO {s}.log SELECT done.number, a.version, a.after + 1, a.body
    FROM done JOIN a USING (key) WHERE a.version > a.after
), heard AS (
    INSERT INTO {s}.messages(key, task, replica, at, reply)
    SELECT key, task, %b, at, reply FROM unnest(%b::bytea[], %b::bytea[], %b::int8[], %b::bytea[])
    AS h(key, task, at, reply)
    ON CONFLICT (key) DO NOTHING RETURNING key
), replied AS (
    UPDATE {s}.messages m SET reply = n.reply
    FROM unnest(%b::bytea[], %b::bytea[]) AS n(key, reply)
    WHERE m.key = n.key AND m.reply IS NULL
), released AS (
    UPDATE {s}.tasks t SET owner = NULL
    FROM r WHERE t.key = r.key AND t.owner = %b AND r.key NOT IN (SELECT key FROM done)
)
SELECT array(SELECT key FROM done), array(SELECT key FROM heard)
"""
        self.marked = f"SELECT key FROM {s}.tasks WHERE key = ANY(%b::bytea[]) AND mark = %b"
        self.outcomes = f"SELECT key, task, reply, replica FROM {s}.messages WHERE key = ANY(%b::bytea[])"

        self.newest = f"SELECT coalesce(max(updated), 0) FROM {s}.tasks"
        self.get = f"SELECT {_COLUMNS} FROM {s}.tasks WHERE key = %b"
        self.events = (
            f"SELECT t.version, l.first, l.body FROM {s}.tasks t LEFT JOIN {s}.log l ON l.task = t.number"
            " AND l.last > %b WHERE t.key = %b ORDER BY l.last LIMIT %b"
        )
        self.take = f"""
UPDATE {s}.tasks SET owner = %(me)b, mark = %(mark)b WHERE number IN (
    SELECT number FROM {s}.tasks t WHERE state IN {_AT_WORK} AND substring(scope FROM 1 FOR %(length)b) = %(prefix)b
    AND (owner IS NULL OR NOT EXISTS (SELECT 1 FROM {s}.replicas r WHERE r.id = t.owner))
    ORDER BY number LIMIT 200 FOR UPDATE SKIP LOCKED
) RETURNING {_COLUMNS}"""
        self.taken = f"SELECT {_COLUMNS} FROM {s}.tasks WHERE state IN {_AT_WORK} AND mark = %(mark)b"
        self.claim = (
            f"UPDATE {s}.tasks SET owner = %(me)b, mark = %(mark)b WHERE key = %(key)b"
            f" AND owner IS NOT DISTINCT FROM %(owner)b AND state NOT IN {_ENDED} RETURNING {_COLUMNS}"
        )
        self.claimed = f"SELECT {_COLUMNS} FROM {s}.tasks WHERE key = %(key)b AND mark = %(mark)b"
        self.claim_message = (
            f"UPDATE {s}.messages SET replica = %b WHERE key = %b AND replica = ANY(%b::text[]) RETURNING 1"
        )
        self.beat = (
            f"WITH mine AS (INSERT INTO {s}.replicas VALUES(%b, 1) ON CONFLICT (id)"
            " DO UPDATE SET beats = replicas.beats + 1 RETURNING id, beats)"
            f" SELECT id, beats FROM mine UNION ALL SELECT id, beats FROM {s}.replicas WHERE id <> %b"
        )
        self.bury = f"DELETE FROM {s}.replicas WHERE id = %b AND beats = %b RETURNING 1"
        self.leave = f"DELETE FROM {s}.replicas WHERE id = %b"

        self.put_letters = f"INSERT INTO {s}.letters(replica, body) SELECT %b, unnest(%b::bytea[]) RETURNING id"
        self.take_letters = f"DELETE FROM {s}.letters WHERE id = ANY(%b::int8[]) RETURNING id, body"
        self.drop_letters = f"DELETE FROM {s}.letters WHERE at < now() - interval '10 minutes'"

        self._webhooks(s)

        log_bytes = f"(SELECT coalesce(sum(octet_length(body)), 0) FROM {s}.log WHERE task = number)"
        size = f"octet_length(snapshot) + {log_bytes}"
        # Of each state by its index, so that each step of a long prune looks at what it drops alone.
        ended = f"""
FROM (
    SELECT t.* FROM unnest(%(states)b::text[]) AS wanted(state) CROSS JOIN LATERAL (
        SELECT * FROM {s}.tasks WHERE tasks.state = wanted.state AND tasks.state IN {_ENDED}
        AND updated >= %(since)b AND updated < %(before)b {{also}} ORDER BY updated LIMIT %(rows)b
        FOR UPDATE SKIP LOCKED
    ) AS t ORDER BY updated LIMIT %(rows)b
) AS ended"""
        self.oldest = f"SELECT number, updated, state, {size} {ended.format(also='')}"
        self.drop_tasks = (
            f"WITH gone AS (DELETE FROM {s}.log WHERE task = ANY(%(keys)b::int8[])),"
            f" untold AS (DELETE FROM {s}.webhooks WHERE task_key IN"
            f" (SELECT key FROM {s}.tasks WHERE number = ANY(%(keys)b::int8[])))"
            f" DELETE FROM {s}.tasks WHERE number = ANY(%(keys)b::int8[])"
        )
        self.size_of = f"SELECT coalesce(sum({size}), 0) FROM {s}.tasks WHERE state = ANY(%b::text[])"
        self.log_size = (
            f"SELECT coalesce(sum(octet_length(body)), 0) FROM {s}.log JOIN {s}.tasks ON number = task"
            f" WHERE state IN {_ENDED}"
        )
        also = f"AND EXISTS (SELECT 1 FROM {s}.log WHERE task = number)"
        self.oldest_logs = f"SELECT number, updated, {log_bytes} {ended.format(also=also)}"
        self.drop_logs = f"DELETE FROM {s}.log WHERE task = ANY(%(keys)b::int8[])"
        outcome = f"({_OUTCOME_BYTES} + coalesce(octet_length(reply), 0))"
        self.messages_size = f"SELECT coalesce(sum({outcome}), 0) FROM {s}.messages"
        self.oldest_messages = (
            f"SELECT key, at, {outcome} FROM {s}.messages WHERE at >= %(since)b AND at < %(before)b"
            " ORDER BY at LIMIT %(rows)b FOR UPDATE SKIP LOCKED"
        )
        self.drop_messages = f"DELETE FROM {s}.messages WHERE key = ANY(%(keys)b::bytea[])"

        self.states = f"SELECT state, count(*) FROM {s}.tasks GROUP BY state"
        self.counts = (
            f"SELECT (SELECT coalesce(sum(last - first + 1), 0) FROM {s}.log), (SELECT count(*) FROM {s}.messages),"
            f" (SELECT min(updated) FROM {s}.tasks), (SELECT count(*) FROM {s}.replicas),"
            f" (SELECT count(*) FROM {s}.webhooks), (SELECT count(*) FROM {s}.webhooks WHERE dead IS NOT NULL),"
            f" pg_total_relation_size('{s}.tasks') + pg_total_relation_size('{s}.log')"
            f" + pg_total_relation_size('{s}.messages') + pg_total_relation_size('{s}.webhooks')"
        )
        self.numbers = (
            f"SELECT updated, number FROM {s}.tasks WHERE (updated, number) > (%b, %b)"
            " ORDER BY updated, number LIMIT %b"
        )
        self.numbered = f"SELECT number, {_COLUMNS} FROM {s}.tasks WHERE number = ANY(%b::int8[])"
        self.logs = f"SELECT task, first, body FROM {s}.log WHERE task = ANY(%b::int8[]) ORDER BY task, last"
        self.put_task = (
            f"INSERT INTO {s}.tasks(key, scope_key, context_key, scope, id, context, state, updated, version, snapshot,"
            " snapshot_version) VALUES(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)"
            " ON CONFLICT (key) DO NOTHING RETURNING number"
        )
        self.put_log = f"INSERT INTO {s}.log VALUES(%b, %b, %b, %b)"

    def _webhooks(self, s: str) -> None:
        """Those of webhooks."""
        ended = f"t.state IN {_ENDED} AND t.version <="
        self.lock_task = "SELECT pg_advisory_xact_lock(%b::int8)"
        self.has_webhook = f"SELECT 1 FROM {s}.webhooks WHERE key = %b AND created = %b"
        self.count_others = f"SELECT count(*) FROM {s}.webhooks WHERE task_key = %b AND key <> %b"
        # The task cannot be dropped meanwhile: a webhook that has one goes with it.
        self.set_webhook = f"""
WITH t AS (SELECT state, version FROM {s}.tasks WHERE key = %(task_key)b FOR KEY SHARE)
INSERT INTO {s}.webhooks(key, task_key, {_WEBHOOK}, taskless, finished)
SELECT %(key)b, %(task_key)b, %(scope)b, %(task)b, %(id)b, %(config)b, %(version)b, %(after)b::int8, %(created)b::int8,
       %(owner)b, %(failing)b::int8, %(failed)b::int8, %(dead)b::int8, %(reason)b,
       NOT EXISTS (SELECT 1 FROM t), EXISTS (SELECT 1 FROM t WHERE {ended} %(after)b::int8)
ON CONFLICT (key) DO UPDATE SET
    config = excluded.config, version = excluded.version, after = excluded.after, created = excluded.created,
    owner = excluded.owner, failing = excluded.failing, failed = excluded.failed, dead = excluded.dead,
    reason = excluded.reason, taskless = excluded.taskless, finished = excluded.finished, mark = NULL
"""
        self.webhooks = f"SELECT {_WEBHOOK} FROM {s}.webhooks WHERE task_key = %b ORDER BY created, id"
        self.drop_webhook = f"DELETE FROM {s}.webhooks WHERE key = %b RETURNING 1"
        # How far some have come, and which of them are let go of.
        self.note = f"""
UPDATE {s}.webhooks w SET
    after = greatest(w.after, n.after),
    failing = CASE WHEN w.after < n.after THEN n.failing
        WHEN w.after = n.after THEN coalesce(w.failing, n.failing) ELSE w.failing END,
    owner = CASE WHEN n.let_go AND w.owner = %b THEN NULL ELSE w.owner END,
    finished = w.finished
        OR EXISTS (SELECT 1 FROM {s}.tasks t WHERE t.key = w.task_key AND {ended} greatest(w.after, n.after))
FROM unnest(%b::bytea[], %b::int8[], %b::int8[], %b::int8[], %b::bool[])
    AS n(key, created, after, failing, let_go)
WHERE w.key = n.key AND w.created = n.created
"""
        # An owner is looked at (`seen`) with the replicas of the same moment: one that has changed since is another's.
        nobody = f"seen.owner IS NULL OR NOT EXISTS (SELECT 1 FROM {s}.replicas r WHERE r.id = seen.owner)"
        found = f"SELECT w.key FROM {s}.webhooks w JOIN {s}.webhooks seen ON seen.key = w.key"
        same = "w.owner IS NOT DISTINCT FROM seen.owner"
        self.claim_webhooks = f"""
UPDATE {s}.webhooks SET owner = %(me)b WHERE key IN (
    {found} WHERE w.task_key = %(task_key)b AND w.dead IS NULL
    AND (w.owner = %(me)b OR ({same} AND ({nobody}))) ORDER BY w.key FOR UPDATE OF w
) RETURNING {_WEBHOOK}"""
        self.take_webhooks = f"""
UPDATE {s}.webhooks SET owner = %(me)b, mark = %(mark)b WHERE key IN (
    {found} WHERE w.dead IS NULL AND NOT w.finished AND substring(w.scope FROM 1 FOR %(length)b) = %(prefix)b
    AND w.owner IS DISTINCT FROM %(me)b AND {same} AND ({nobody})
    AND EXISTS (SELECT 1 FROM {s}.tasks t WHERE t.key = w.task_key AND t.version > w.after)
    ORDER BY w.created LIMIT %(limit)b FOR UPDATE OF w SKIP LOCKED
) RETURNING {_WEBHOOK}"""
        self.taken_webhooks = (
            f"SELECT {_WEBHOOK} FROM {s}.webhooks"
            " WHERE dead IS NULL AND NOT finished AND owner = %(me)b AND mark = %(mark)b"
        )
        self.give_up_webhook = (
            f"UPDATE {s}.webhooks SET after = greatest(after, %(after)b::int8),"
            " failing = CASE WHEN after < %(after)b::int8 THEN NULL ELSE failing END, failed = %(failed)b::int8,"
            " dead = %(at)b::int8, reason = %(reason)b, owner = NULL"
            " WHERE key = %(key)b AND created = %(created)b::int8 AND dead IS NULL"
            " AND (owner IS NULL OR owner = %(me)b)"
        )
        self.dead_webhooks = (
            f"SELECT {_WEBHOOK} FROM {s}.webhooks WHERE dead IS NOT NULL AND substring(scope FROM 1 FOR %b) = %b"
            " ORDER BY dead DESC LIMIT %b"
        )
        self.revive_webhook = (
            f"UPDATE {s}.webhooks SET dead = NULL, failing = NULL, failed = 0, reason = '', owner = NULL"
            " WHERE key = %b AND dead IS NOT NULL RETURNING 1"
        )
        self.is_alive = f"SELECT 1 FROM {s}.webhooks WHERE key = %b AND dead IS NULL"
        self.oldest_taskless = (
            f"SELECT key, EXISTS (SELECT 1 FROM {s}.tasks t WHERE t.key = w.task_key) FROM {s}.webhooks w"
            " WHERE taskless AND created < %b ORDER BY created LIMIT %b FOR UPDATE SKIP LOCKED"
        )
        self.has_task = f"UPDATE {s}.webhooks SET taskless = false WHERE key = ANY(%b::bytea[])"
        self.drop_taskless = f"DELETE FROM {s}.webhooks WHERE key = ANY(%b::bytea[])"

    def page(self, where: str) -> str:
        """The tasks of a list that fit."""
        return f"SELECT {_COLUMNS} FROM {self._schema}.tasks WHERE {where} ORDER BY updated DESC, id DESC LIMIT %b"

    def count(self, where: str) -> str:
        """How many fit."""
        return f"SELECT count(*) FROM {self._schema}.tasks WHERE {where}"
