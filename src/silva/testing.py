"""One assertion for the promise that everything rests on: the stream never depends on how it is
run.

`assert_same_stream(pipeline)` runs a pipeline inline, on threads and in processes, with several
numbers of workers, as written, optimised and with plans that change on the way, with blocks
cut in other places, and restored after batches (at some points in a fresh
process). All of it must be byte-identical. Use it on pipelines of your own; on Ray, with
`backends=("ray",), cluster="auto"`.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from silva.columns import Ragged
from silva.columns.padding import bytes_of
from silva.columns.ragged import Grouped
from silva.cost.costs import Cost
from silva.loader import Loader
from silva.pipeline import Pipeline
from silva.planner.known_costs import Effort, Measured
from silva.planner.movable_runs import StepRun

Digest = str
_T = TypeVar("_T")

_RESTORED = 12
"""States of a stream that it is restored from; of a longer one, these are drawn."""
_PLANS = 2
"""Runs in which plans are changed at will."""


def digest(batch: Any) -> Digest:
    """A hash of a batch or row: names and their order, types (also those of what lies within
    lists, dicts and object arrays), shapes and bytes.

    >>> digest({"x": [[1], 2]}) == digest({"x": [[1, 2]]})
    False
    >>> digest(np.array([1, None])) == digest(np.array([np.int64(1), None]))
    False
    """
    seen = hashlib.blake2b(digest_size=12)
    _feed(seen, batch)
    return seen.hexdigest()


def _feed(seen: Any, value: Any) -> None:
    kind = type(value)
    seen.update(f"{kind.__module__}.{kind.__qualname__} ".encode())
    if isinstance(value, dict):
        _feed_all(seen, [part for item in value.items() for part in item])
    elif isinstance(value, np.ma.MaskedArray):
        _feed(seen, value.filled(0))
        _feed(seen, np.ma.getmaskarray(value))
    elif isinstance(value, np.ndarray):
        dtype = value.dtype.descr if value.dtype.names else value.dtype.str
        seen.update(f"{dtype}{value.shape} ".encode())
        if value.dtype.hasobject:
            _feed_all(seen, value.ravel().tolist())
        else:
            seen.update(bytes_of(np.ascontiguousarray(value)))
    elif isinstance(value, list | tuple):
        _feed_all(seen, value)
    elif isinstance(value, Ragged):
        _feed_all(seen, (value.values, value.offsets))
    elif isinstance(value, Grouped):
        _feed_all(seen, (value.values, value.offsets, value.inverse))
    elif kind.__module__ == "torch":  # whose text leaves numbers out
        seen.update(f"{value.dtype}{tuple(value.shape)} ".encode())
        _feed(seen, value.tolist())
    else:
        seen.update(f"{value!r} ".encode())


def _feed_all(seen: Any, values: Sequence[Any]) -> None:
    seen.update(f"{len(values)} ".encode())
    for value in values:
        _feed(seen, value)


def stream(loader: Loader) -> list[Digest]:
    """The digests of one epoch."""
    return [digest(batch) for batch in loader]


def cut_blocks(loader: Loader, sizes: Iterable[int]) -> Loader:
    """A loader like this one with blocks of these sizes, again and again."""
    return loader.with_seams(block_sizes=sizes)


def replanned(loader: Loader, seed: int) -> Loader:
    """A loader like this one that believes at every batch that its steps cost something else, and
    changes its plan accordingly: other orders, with and without caches."""
    return loader.with_seams(costs=_ImaginedCosts(random.Random(seed)))


class _ImaginedCosts:
    """Costs that are drawn anew whenever the planner asks, which it does at every batch."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    effort = Effort(0.0, math.inf, math.inf)

    def before(self, run: StepRun) -> Measured:
        source = () if run.source is None else run.source.source.columns()
        steps = {step.id: _imagined(self._rng, step.writes) for step in run.steps}
        return Measured(_imagined(self._rng, source), _imagined(self._rng, ()), steps)

    def now(self, run: StepRun) -> Measured:
        return self.before(run)

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


def _imagined(rng: random.Random, columns: Iterable[str]) -> Cost:
    sizes = {name: rng.choice((1_000, 1_000_000)) for name in columns}
    return Cost(100, rng.randint(1, 100), 10 ** rng.uniform(-4, 1), 0.0, sizes)


def assert_same_stream(
    pipeline: Pipeline,
    *,
    backends: Sequence[str] = ("inline", "threads", "processes"),
    workers: Sequence[int] = (1, 2, 5),
    restore: bool = True,
    fresh_process: bool = True,
    epochs: int = 2,
    **options: Any,
) -> None:
    """Raises AssertionError at the first way of running `pipeline` that gives another stream.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(20)}).derive(y=lambda x, rng: x + rng.random())
    >>> assert_same_stream(numbers.batch(4), backends=("inline", "threads"), fresh_process=False)
    """
    reference = _Reference(pipeline, epochs, options)
    for optimized in (True, False):
        plan = pipeline if optimized else pipeline.options(optimize=False)
        how = "optimised" if optimized else "as written"
        _compare(reference, _loader(plan, "inline", 0, options), f"inline, {how}")
    for seed in range(_PLANS):
        with replanned(
            _loader(pipeline, "inline", 0, {"epochs": epochs, **options}), seed
        ) as loader:
            _compare(reference, loader, f"inline, replanned at will (seed {seed})")
    for sizes in ((1,), (3, 1, 7), (1000,)):
        cut = cut_blocks(_loader(pipeline, "inline", 0, options), sizes)
        _compare(reference, cut, f"inline, blocks of {sizes}")
    for backend in backends:
        for count in workers if backend != "inline" else ():
            with _loader(pipeline, backend, count, options) as loader:
                _compare(reference, loader, f"{backend}, {count} workers")
    if restore:
        _restore_everywhere(reference, pipeline, backends, options)
    if fresh_process and reference.states:
        _restore_in_fresh_process(reference, pipeline, options)


def _some(states: list[_T], most: int) -> list[_T]:
    """All of them; of many, so many that were drawn, and the last one, where an epoch ends."""
    if len(states) <= most:
        return states
    return [*random.Random(0).sample(states[:-1], most - 1), states[-1]]


class _Reference:
    """The stream inline, and the state after each batch."""

    def __init__(self, pipeline: Pipeline, epochs: int, options: dict[str, Any]) -> None:
        loader = _loader(pipeline, "inline", 0, options)
        self.epochs: list[list[Digest]] = []
        self.states: list[tuple[int, int, str]] = []
        for epoch in range(epochs):
            found: list[Digest] = []
            for batch in loader:
                found.append(digest(batch))
                self.states.append((epoch, len(found), json.dumps(loader.state_dict())))
            self.epochs.append(found)
            self.states.append((epoch + 1, 0, json.dumps(loader.state_dict())))

    def rest(self, epoch: int, given: int) -> list[list[Digest]]:
        """What must come after `given` batches of an epoch."""
        if epoch >= len(self.epochs):
            return []
        return [self.epochs[epoch][given:], *self.epochs[epoch + 1 :]]


def _loader(pipeline: Pipeline, backend: Any, workers: int, options: dict[str, Any]) -> Loader:
    made: Loader = pipeline.loader(backend=backend, workers=workers, **options)
    return made


def _compare(reference: _Reference, loader: Loader, how: str) -> None:
    for epoch, expected in enumerate(reference.epochs):
        _assert_equal(stream(loader), expected, f"{how}, epoch {epoch}")


def _assert_equal(found: list[Digest], expected: list[Digest], how: str) -> None:
    if found == expected:
        return
    same = next(
        (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
        min(len(found), len(expected)),
    )
    raise AssertionError(
        f"another stream: {how}: {len(found)} batches instead of {len(expected)}, the first "
        f"difference at batch {same}"
    )


def _restore_everywhere(
    reference: _Reference, pipeline: Pipeline, backends: Sequence[str], options: dict[str, Any]
) -> None:
    for epoch, given, state in _some(reference.states, _RESTORED):
        loader = cut_blocks(_loader(pipeline, "inline", 0, options), (2, 5))
        loader.load_state_dict(json.loads(state))
        again = loader.state_dict()
        assert again["cursors"] == json.loads(state)["cursors"], "a loaded state is another state"
        for i, expected in enumerate(reference.rest(epoch, given)):
            how = f"restored after batch {given} of epoch {epoch}, epoch {epoch + i}"
            _assert_equal(stream(loader), expected, how)
    for backend in (b for b in backends if b != "inline"):
        with _loader(pipeline, backend, 2, options) as loader:  # workers take long to start
            for epoch, given, state in _some(reference.states, 3):
                loader.load_state_dict(json.loads(state))
                for i, expected in enumerate(reference.rest(epoch, given)):
                    how = f"{backend}, restored after batch {given} of epoch {epoch} (+{i})"
                    _assert_equal(stream(loader), expected, how)


_CHILD = """
import json, sys, cloudpickle
sys.path[:] = json.loads(sys.argv[2])
from silva.testing import stream
with open(sys.argv[1], "rb") as file:
    pipeline, state, options, epochs = cloudpickle.load(file)
loader = pipeline.loader(backend="inline", **options)
loader.load_state_dict(json.loads(state))
print(json.dumps([stream(loader) for _ in range(epochs)]))
"""


def _restore_in_fresh_process(
    reference: _Reference, pipeline: Pipeline, options: dict[str, Any]
) -> None:
    epoch, given, state = reference.states[len(reference.states) // 3]
    expected = reference.rest(epoch, given)
    found = run_in_fresh_process(pipeline, state, options, len(expected))
    for i, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        _assert_equal(theirs, ours, f"fresh process, after batch {given} of epoch {epoch} (+{i})")


def run_in_fresh_process(
    pipeline: Pipeline, state: str, options: dict[str, Any], epochs: int
) -> list[list[Digest]]:
    """The epochs that a new Python process reads from `state`."""
    import cloudpickle

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline"
        file.write_bytes(cloudpickle.dumps((pipeline, state, options, epochs)))
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(file), json.dumps(sys.path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if child.returncode:
        raise AssertionError(f"the fresh process failed:\n{child.stderr}")
    found: list[list[Digest]] = json.loads(child.stdout)
    return found


def assert_no_leaks(pipeline: Pipeline, time: str, **arguments: Any) -> None:
    """Raises AssertionError if a column depends on what was not known at the row's own time, or if
    there is a joined table of which nobody can say when its rows were known.

    >>> import silva as sv
    >>> clicks = sv.from_columns({"user": [1, 2], "ts": [10, 10]})
    >>> counts = {"user": [1, 1, 2], "ts": [3, 12, 8], "n": [1, 2, 3]}
    >>> assert_no_leaks(clicks.asof_join(counts, by="user", on="ts"), time="ts")
    """
    leaks = pipeline.check_leaks(time, **arguments)
    if leaks or leaks.unchecked:
        raise AssertionError(str(leaks))


def batches_of(loader: Loader, count: int) -> Iterator[Any]:
    """The first `count` batches; the loop is then left as by `break`."""
    for i, batch in enumerate(loader):
        yield batch
        if i + 1 == count:
            break
