"""Calling a user's function on the rows of a block: fast while all goes well, exact when not.

The fast way is one `map` over lists. When a row raises, the block is done again row by row
(functions are pure), so that every bad row is known by its key. When the function moved a global
generator, the block is done again with that generator seeded per row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from silva.order.draws import Draw
from silva.physical.globals import ALL, GATE, GlobalStates, seeding
from silva.physical.marks import Snapshot
from silva.physical.rows import Rows, call_arguments
from silva.plan.function import Function, Stateful

T = TypeVar("T")


class Worker:
    """What one worker keeps between blocks: objects of stateful classes, and which functions are
    known to use global generators."""

    def __init__(self, *, shares_generators: bool) -> None:
        self.shares_generators = shares_generators
        """True on a thread beside the trainer: the global generators are not ours to seed."""
        self.moved = False
        """A global generator moved during the last stage, and nobody could seed it."""
        self._built: dict[int, Callable[..., Any]] = {}
        self._keep: list[Any] = []
        self._seeded: dict[int, frozenset[str]] = {}
        self._snapshot: Snapshot | None = None
        self._met: dict[int, Any] = {}

    def is_first(self, function: Function) -> bool:
        """Whether this worker meets a function for the first time."""
        new = id(function.fn) not in self._met
        self._met[id(function.fn)] = function.fn
        return new

    def snapshot(self) -> Snapshot:
        """The global generators now; the last copy serves as long as none has moved."""
        if self._snapshot is None or not self._snapshot.holds():
            self._snapshot = Snapshot.take()
        return self._snapshot

    def callable(self, function: Function) -> Callable[..., Any]:
        if not isinstance(function.fn, Stateful):
            fn: Callable[..., Any] = function.fn
            return fn
        key = id(function.fn)
        if key not in self._built:
            self._built[key] = _build(function.fn)
            self._keep.append(function.fn)
        return self._built[key]

    def seeded(self, function: Function) -> frozenset[str]:
        """The global generators that a function is known to draw from."""
        return self.seeds_for(function.fn)

    def seeds_for(self, owner: Any) -> frozenset[str]:
        return self._seeded.get(id(owner), frozenset())

    def note_seeded(self, owner: Any, names: frozenset[str]) -> None:
        self._seeded[id(owner)] = self.seeds_for(owner) | names
        self._keep.append(owner)


def _build(stateful: Stateful) -> Callable[..., Any]:
    """The object, with the generators seeded: random weights are the same in each worker."""
    with GATE.alone():
        before = GlobalStates.now()
        try:
            next(seeding(ALL, [0]))
            return stateful.build()
        finally:
            before.restore()


Outcome = tuple[list[Any], np.ndarray | None]
"""Results, and a mask of the rows that have one (None: all have)."""


def call_rows(
    function: Function, rows: Rows, worker: Worker, key: tuple[int | str, ...], label: str
) -> Outcome:
    """The function's result for every row; rows on which it failed are noted in `rows.failures`."""
    fn = worker.callable(function)
    draw = _draw(rows, key)
    failed = len(rows.failures)

    def attempt(seeded: frozenset[str]) -> Outcome:
        del rows.failures[failed:]
        return _call(fn, function, rows, draw, label, seeded)

    return watched(function.fn, worker, attempt)


def watched(owner: Any, worker: Worker, attempt: Callable[[frozenset[str]], T]) -> T:
    """`attempt(names)` with an eye on the global generators. `names` are those that it must seed
    for each row; it is called again when it turns out to draw from more of them."""
    if not worker.seeds_for(owner):
        with GATE.together():
            before = worker.snapshot()
            outcome = attempt(frozenset())
            moved = before.moved()
        if not moved:
            return outcome
        if worker.shares_generators:
            worker.moved = True
            return outcome
        with GATE.alone():
            before.states.restore()
        worker.note_seeded(owner, moved)
    while True:
        names = worker.seeds_for(owner)
        with GATE.alone():
            states = GlobalStates.now()
            try:
                outcome = attempt(names)
                moved = states.moved_to(GlobalStates.now())
            finally:
                states.restore()
        if moved <= names:
            return outcome
        worker.note_seeded(owner, moved)


def _draw(rows: Rows, key: tuple[int | str, ...]) -> Draw:
    from silva.order.draws import stream_key

    return Draw(stream_key(*key), rows.ids, rows.places)


def _call(
    fn: Callable[..., Any],
    function: Function,
    rows: Rows,
    draw: Draw,
    label: str,
    seeded: frozenset[str],
) -> Outcome:
    arguments = call_arguments(function, rows.columns)
    plain = not (function.takes_rng or function.keywords or seeded or function.marks.owns)
    if plain:
        try:
            if not arguments:
                return [fn() for _ in range(len(rows))], None
            return list(map(fn, *arguments)), None
        except (Exception, SystemExit):
            if not len(rows):
                raise
    return _call_one_by_one(fn, function, rows, draw, label, arguments, seeded)


def _call_one_by_one(
    fn: Callable[..., Any],
    function: Function,
    rows: Rows,
    draw: Draw,
    label: str,
    arguments: list[list[Any]],
    seeded: frozenset[str],
) -> Outcome:
    positional = len(function.reads) - len(function.keywords)
    names = function.keywords
    generators: Iterator[Any] = draw.generators() if function.takes_rng else repeat(None)
    seeds: Iterator[None] = seeding(seeded, draw.seeds().tolist()) if seeded else iter(repeat(None))
    by_row: Iterator[tuple[Any, ...]] = (
        zip(*arguments, strict=True) if arguments else iter([()] * len(rows))
    )
    results: list[Any] = []
    good = np.ones(len(rows), dtype=bool)
    context = rows.context
    for i, values in enumerate(by_row):
        call = fn
        generator = next(generators)
        next(seeds)
        if function.takes_rng:
            call = functools.partial(call, rng=generator)
        try:
            if names:
                results.append(
                    call(*values[:positional], **dict(zip(names, values[positional:], strict=True)))
                )
            else:
                results.append(call(*values))
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, it is that row's
            rows.fail(i, label, error)
            if context.on_error == "substitute":
                results.append(context.substitute)
                continue
            good[i] = False
            results.append(None)
            if context.on_error == "raise":  # what comes after this row will never be asked for
                good[i:] = False
                break
    if good.all():
        return results, None
    results += [None] * (len(rows) - len(results))
    return results, good
