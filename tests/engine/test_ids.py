"""Identifiers: random UUIDs of version 4, no two alike, not even across a fork."""

from __future__ import annotations

import os
import uuid

import pytest

from tieline.ids import new_id


@pytest.mark.requirement("task.id-unique", over=("direct",))
def test_identifiers_are_uuids_of_version_4_and_differ() -> None:
    made = [new_id() for _ in range(2000)]
    assert len(set(made)) == len(made)
    for one in made:
        parsed = uuid.UUID(one)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, one)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_draws_other_identifiers_than_its_parent() -> None:
    new_id()  # so that there are some in stock
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, " ".join(new_id() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        drawn = pipe.read().split()
    assert len(drawn) == 50
    assert not set(drawn) & {new_id() for _ in range(300)}
