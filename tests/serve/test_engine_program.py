"""`ask`, from any thread, process or step."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

import silva as sv
from silva.serve.engine import program
from silva.serve.engine.engine import Late

FORKED = """
import os, silva as sv
asked = sv.requests("x").derive(y=lambda x: x + 1)
asked.ask(x=1)
child = os.fork()
if child == 0:
    os._exit(0 if asked.ask(x=2, deadline=20.0) == {"x": 2, "y": 3} else 1)
assert os.waitpid(child, 0)[1] == 0
assert asked.ask(x=3) == {"x": 3, "y": 4}
"""


def test_a_forked_child_asks_with_an_engine_of_its_own() -> None:
    """In a process of its own: other libraries of this one have threads that no fork survives."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)


def test_threads_that_ask_first_open_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    begin = threading.Barrier(8)
    engine = program.Engine

    def counted(plan: Any) -> Any:
        made.append(plan)
        threading.Event().wait(0.02)
        return engine(plan)

    monkeypatch.setattr(program, "Engine", counted)
    asked = sv.requests("x").derive(y=lambda x: x)

    def ask() -> None:
        begin.wait()
        asked.ask(x=1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_a_step_that_asks_its_own_pipeline_is_told_so(in_place: bool) -> None:
    def again(x):
        return asked.ask(x=x + 1)["y"] if x < 3 else x

    asked = sv.requests("x").derive(y=again)
    assert asked.ask(x=3) == {"x": 3, "y": 3}
    assert asked._program is not None
    asked._program._engine.stations[0].quick.in_place = in_place
    with pytest.raises(sv.RowError, match="asks the pipeline that it is part of"):
        asked.ask(x=1)
    asked._program.close()


def test_a_step_that_holds_the_event_loop_does_not_hold_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "_GRACE", 0.05)
    over = threading.Event()

    def hangs(x):
        if x:
            over.wait(timeout=60)
        return x

    asked = sv.requests("x").derive(y=hangs)
    asked.ask(x=0)
    assert asked._program is not None
    asked._program._engine.stations[0].quick.in_place = True
    with pytest.raises(Late):
        asked.ask(x=1, deadline=0.05)
    over.set()
    assert asked.ask(x=0) == {"x": 0, "y": 0}
