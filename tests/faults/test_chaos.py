"""A short run of scripts/chaos: two replicas, killed while callers stream through them."""

from __future__ import annotations

import pytest

from tests.chaos.run import SERVERS, chaos
from tests.engine.scene import within

LIMIT_S = 180.0  # on a busy machine; on an idle one it takes about 20
GRACE_S = 30.0  # as above: here nothing is measured


@pytest.mark.parametrize("database", sorted(SERVERS))
@within(LIMIT_S)
async def test_replicas_that_are_killed_lose_nothing_repeat_nothing_and_leave_nothing_at_work(database: str) -> None:
    with SERVERS[database]() as server:
        outcome = await chaos(server.url(), seed=5, tasks=30, kills=2, replicas=2, grace_s=GRACE_S)
    assert not outcome.failed, str(outcome)
    assert len(outcome.works) >= 30
    assert len(outcome.deaths) == 2
