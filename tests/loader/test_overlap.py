"""The next epoch begins while the last batches of this one are out, and nobody can tell."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest

import silva as sv
from silva.loader.position import StreamPosition
from silva.run.stream import NextEpoch
from silva.testing import cut_blocks, digest, stream

EPOCHS = 3


def _pipeline() -> sv.Pipeline:
    rows = sv.from_columns({"x": range(50)}).shuffle(seed=1)
    return rows.derive(y=lambda x, rng: x + rng.random()).batch(8)


def _expected() -> list[list[str]]:
    loader = _pipeline().loader(backend="inline")
    return [stream(loader) for _ in range(EPOCHS)]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_next_epoch_has_begun_before_the_last_batch_is_taken(backend: str) -> None:
    made = _pipeline().loader(backend=backend, workers=2, epochs=EPOCHS)
    with cut_blocks(made, [8]) as loader:  # its own sizes depend on how fast the machine is
        begun, found = [], []
        for _ in range(EPOCHS):
            epoch = []
            for batch in loader:
                epoch.append(digest(batch))
                begun.append(loader._epochs.has_begun_next)
            found.append(epoch)
        assert found == _expected()
        assert any(begun)
        assert not loader._epochs.has_begun_next, "after the last epoch there is none"


def _begun(rows: sv.Pipeline) -> list[bool]:
    """After each batch of the first of two epochs, whether the second one has begun."""
    with cut_blocks(rows.batch(8).loader(backend="threads", workers=2, epochs=2), [8]) as loader:
        return [loader._epochs.has_begun_next for _ in loader]


def test_the_next_epoch_waits_for_the_last_pipeline_of_a_concat() -> None:
    parts = [sv.from_columns({"x": range(160)}).derive(y=lambda x: x + 1) for _ in range(3)]
    begun = _begun(sv.concat(parts))
    assert not any(begun[:40]), "two of three pipelines give 40 batches"
    assert any(begun)


def test_the_next_epoch_waits_for_a_cache_that_is_opened_later() -> None:
    first = sv.from_columns({"x": range(80)}).derive(y=lambda x: x + 1)
    later = sv.from_columns({"x": range(160)}).derive(y=lambda x: x + 2).cache()
    assert not any(_begun(sv.concat([first, later])))


def test_a_state_of_the_last_batches_is_of_this_epoch() -> None:
    expected = _expected()
    with _pipeline().loader(backend="threads", workers=2, epochs=EPOCHS) as loader:
        for given, _ in enumerate(loader, start=1):
            state = json.loads(json.dumps(loader.state_dict()))
            other = _pipeline().loader(backend="inline", epochs=EPOCHS)
            other.load_state_dict(state)
            rest = [stream(other) for _ in range(EPOCHS)]
            assert rest == [expected[0][given:], *expected[1:]]


@pytest.mark.parametrize(("backend", "after"), [("threads", range(1, 8)), ("processes", (1, 7))])
def test_leaving_the_loop_then_leaves_no_worker(backend: str, after: Sequence[int]) -> None:
    for last in after:
        loader = _pipeline().loader(backend=backend, workers=2, epochs=EPOCHS)
        for given, _ in enumerate(loader, start=1):
            if given == last:
                break
        assert not loader._executor.has_workers
        assert not loader._epochs.has_begun_next
        assert len(stream(loader)) == 7, "the next loop is the next epoch"
        loader.close()


@pytest.mark.rest
def test_a_script_that_ends_in_such_a_moment_ends(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import threading
            import silva as sv

            last = threading.Event()

            def step(x):
                if step.late:
                    threading.Event().wait(3600)
                if x == 15:
                    last.set()
                return x

            step.late = False
            rows = sv.from_columns({"x": range(16)}).derive(y=step).batch(8)
            loader = rows.loader(backend="threads", workers=1, epochs=3)
            batches = iter(loader)
            next(batches)
            last.wait()  # all rows of this epoch are made
            step.late = True
            next(batches)
            print("the end", flush=True)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "the end\n"
    assert done.returncode == 0, done.stderr


def test_what_is_made_ahead_makes_nobody_wait() -> None:
    """The thread that makes the first batch of the next epoch waits for it; the trainer does not,
    and no worker is added for it."""
    rows = sv.from_columns({"x": range(64)}).derive(y=lambda x: x + 1).batch(8)
    with rows.loader(epochs=3, backend="threads", workers=2) as loader:
        ahead = NextEpoch(0, loader._epochs.open(StreamPosition(0)))
        ahead._thread.join()
        (lane,) = loader._executor.lanes.values()
        assert lane.stats.blocks > 0
        assert lane.stats.starved == 0.0
        assert sum(len(batch["y"]) for batch in ahead.batches()) == 64
        assert lane.stats.starved > 0.0


def test_an_epoch_begun_as_blocks_is_not_handed_out_as_batches() -> None:
    with _pipeline().loader(backend="threads", workers=2, epochs=EPOCHS) as loader:
        assert sum(map(len, loader.blocks())) == 50
        assert stream(loader) == _expected()[1]
        assert sum(map(len, loader.blocks())) == 50
