"""Engines in tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import silva as sv
from silva.serve.engine.engine import Engine


@contextlib.contextmanager
def opened(pipeline: sv.Pipeline, **arguments: Any) -> Iterator[Engine]:
    engine = Engine(pipeline.plan, **arguments)
    yield engine
    engine.close()


async def answers(engine: Engine, rows: list[dict[str, Any]], deadline: float = 60) -> list[Any]:
    """How each request ended, asked at once: an outcome or an error."""
    asked = (engine.answer(row, deadline=deadline) for row in rows)
    return await asyncio.gather(*asked, return_exceptions=True)


async def turns(count: int = 10) -> None:
    """Lets the event loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)


def wait(seconds: float) -> None:
    """Makes a step slow; no test depends on how slow."""
    threading.Event().wait(seconds)
