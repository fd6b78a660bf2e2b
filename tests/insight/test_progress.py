"""The live line: right numbers, nothing changed, nothing broken where there is no terminal."""

from __future__ import annotations

import io
import itertools

import pytest
from rich.console import Console

import silva as sv
from silva.facts.loop import LoopClock
from silva.insight.progress import EpochProgress, PlainLine, ResidentMemory, show_progress


def loader(**arguments):
    return sv.from_columns({"x": range(40)}).batch(4).loader(workers=0, **arguments)


def test_batches_are_the_same_with_and_without_progress(capfd) -> None:
    plain = [b["x"].tolist() for b in loader()]
    assert [b["x"].tolist() for b in loader(progress=True)] == plain
    out, err = capfd.readouterr()
    assert out == ""
    assert "epoch 0  10/10 batches" in err
    assert "rows/s" in err
    assert "waited" in err
    assert "iB" in err


def test_on_a_terminal_one_line_is_redrawn() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    found = EpochProgress(epoch=0, done=0, total=10, workers=list)
    list(show_progress(iter(loader()), found, LoopClock(), batched=True, console=console))
    assert "\x1b[2K" in screen.getvalue()
    assert "10/10 batches" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_without_a_known_length_only_the_count_is_shown(capfd) -> None:
    rows = sv.from_columns({"x": range(40)}).filter(lambda x: x % 2 == 0).batch(5)
    list(rows.loader(workers=0, progress=True))
    assert "epoch 0  4 batches" in capfd.readouterr().err


def test_a_loop_that_is_left_early_ends_its_line(capfd) -> None:
    for _ in loader(progress=True):
        break
    assert "1/10 batches" in capfd.readouterr().err


def test_a_resumed_epoch_counts_from_where_it_was(capfd) -> None:
    first = loader()
    batches = iter(first)
    for _ in range(4):
        next(batches)
    second = loader(progress=True)
    second.load_state_dict(first.state_dict())
    list(second)
    assert "10/10 batches" in capfd.readouterr().err


def test_plain_lines_come_every_few_seconds() -> None:
    out = io.StringIO()
    ticks = itertools.count(0, 1.0)
    line = PlainLine(Console(file=out), clock=lambda: next(ticks))
    found = EpochProgress(epoch=0, done=0, total=10, workers=list)
    for _ in range(20):
        line.show(found)
    assert 2 <= out.getvalue().count("\n") <= 5


def test_the_trainer_waits_only_inside_next() -> None:
    times = iter([0, 1, 3, 4, 9])  # asks at 0, has it at 1, trains until 3, waits until 4, until 9
    watch = LoopClock(clock=lambda: next(times))
    watch.ask()
    watch.receive(4)
    watch.ask()
    watch.receive(4)
    watch.ask()
    assert (watch.batches, watch.rows, watch.waited, watch.seconds) == (2, 8, 2, 9)
    assert watch.facts().wait_share == pytest.approx(2 / 9)


def test_time_between_epochs_is_not_counted() -> None:
    times = iter([0, 1, 100, 101])
    watch = LoopClock(clock=lambda: next(times))
    for _ in range(2):
        watch.ask()
        watch.receive(1)
        watch.end()
    assert watch.seconds == watch.waited == 2


def test_samples_are_bounded_and_add_up() -> None:
    ticks = itertools.count(0, 0.2)
    watch = LoopClock(clock=lambda: next(ticks))
    for _ in range(5000):
        watch.ask()
        watch.receive(3)
    assert len(watch.samples) < 250
    assert sum(s.rows for s in watch.samples) == pytest.approx(watch.rows, rel=0.02)
    for before, after in itertools.pairwise(watch.samples):
        assert before.start + before.seconds == pytest.approx(after.start)


def test_memory_is_asked_for_at_most_once_a_second() -> None:
    asked = []
    ticks = itertools.count(0, 0.25)
    memory = ResidentMemory(lambda: asked.append(1) or [], clock=lambda: next(ticks))
    for _ in range(8):
        assert memory.now() > 0
    assert 1 <= len(asked) <= 4


def test_a_worker_that_has_ended_counts_as_no_memory() -> None:
    assert ResidentMemory(lambda: [2**22 + 1]).now() > 0
