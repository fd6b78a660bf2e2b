"""Garbage collections do not visit what was there before the first request."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.http_tools import client

import silva as sv
from silva.serve.engine.garbage import SetAside
from silva.serve.engine.refresh import Refreshing


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """As in a program of its own: the tests have frozen what they began with."""
    gc.unfreeze()
    yield
    gc.freeze()


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.me = self


def test_a_full_collection_beside_requests_visits_few_objects() -> None:
    asked = sv.requests("x").derive(y=lambda x: x + 1)
    with client(asked) as http:
        while http.get("/ready").status_code != 200:
            pass
        every, left = gc.get_freeze_count(), len(gc.get_objects())
        assert left < every / 20
    assert not gc.get_freeze_count()


def test_objects_are_given_back_when_the_last_server_ends() -> None:
    lost = Cycle()
    seen = weakref.ref(lost)
    first, second = SetAside(), SetAside()
    del lost
    first.close()
    first.close()
    gc.collect()
    assert seen() is not None
    second.close()
    gc.collect()
    assert seen() is None
    assert not gc.get_freeze_count()


def test_what_a_program_has_frozen_itself_stays_so() -> None:
    own = Cycle()
    gc.freeze()
    try:
        made = SetAside()
        made.renew()
        made.close()
        assert not any(one is own for one in gc.get_objects())
    finally:
        gc.unfreeze()


@pytest.mark.rest
def test_what_new_versions_replace_is_freed(tmp_path: Path) -> None:
    """Also if it was there when the server began, and is part of a cycle."""
    index = sv.from_columns({"id": [1], "text": ["a fox"]}).to_index(
        tmp_path / "idx", keyword="text", workers=0
    )
    engine = Refreshing(sv.requests("q").derive(hits=index.search("q")).plan, refresh=3600)

    async def every() -> bool:
        held = Cycle()
        engine._engine.held = held  # type: ignore[attr-defined]
        held.engine = engine._engine  # type: ignore[attr-defined]
        await engine.warm()
        index.refresh().add(sv.from_columns({"id": [2], "text": ["a hen"]}), workers=0)
        assert await engine.refresh()
        seen = weakref.ref(held)
        del held
        while seen() is not None:
            await asyncio.sleep(0)
        return True

    try:
        assert asyncio.run(asyncio.wait_for(every(), 60))
    finally:
        engine.close()
