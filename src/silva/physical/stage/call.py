"""Calls a user's function on the rows of a block: fast if no row fails, row by row if one does.

The fast way is one pass over lists. When a row raises, the block is done again row by row
(functions are pure), so that every bad row is known by its key. A `map` takes a StopIteration for
its own end, so the number of results is looked at too. When the function moved a global
generator, the block is done again with that generator seeded per row.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from itertools import compress, repeat
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from silva.errors import StepError
from silva.order.draws import Draw
from silva.physical.stage.checks import Trial
from silva.physical.stage.global_generators import ALL, GATE, GlobalStates, Snapshot, seeding
from silva.physical.stage.raised import in_words, user_traceback
from silva.physical.stage.rows import Rows, call_arguments
from silva.plan.function import Function, Stateful

T = TypeVar("T")

_CHECK_AGAIN = 128
"""Blocks after which a function is checked a second time."""


class Worker:
    """The state of one worker between blocks: objects of stateful classes, and the functions that
    are known to use global generators."""

    def __init__(self, *, shares_generators: bool, answers: bool = False) -> None:
        self._answers = answers
        """Whether clients wait for each block: a check that runs a function on a block twice more
        is then made once, and not again."""
        self.shares_generators = shares_generators
        """True on a thread of the trainer's process, where the global generators must not be
        seeded."""
        self.moved = False
        """Whether a global generator moved during the last stage and could not be seeded."""
        self._built: dict[int, Callable[..., Any]] = {}
        self._keep: list[Any] = []
        self._seeded: dict[int, frozenset[str]] = {}
        self._snapshot: Snapshot | None = None
        self._blocks: dict[tuple[Any, ...], int] = {}
        """The number of blocks that count for each check of a function."""
        self._checked: set[int] = set()
        """The @batched functions whose rows were found not to depend on each other."""
        self.seconds_per_row: dict[int, float] = {}
        """What each function of one row took in the last block."""
        self.never_once: set[int] = set()
        """Functions for which running once per value of a plain column was tried in vain."""

    def may_check(self, function: Function) -> bool:
        """Whether a @batched function is checked on this block, which has two rows or more: on the
        first one, and again on the 128th, 256th, 512th, …, which costs less than 1 % of the work.
        Where the first could not be checked, the 2nd, 4th, 8th, … is tried."""
        number = self._count(function, "neighbours")
        is_new = id(function.fn) not in self._checked
        again = number >= _CHECK_AGAIN and not self._answers
        return number & (number - 1) == 0 and (again or is_new)

    def trial(self, function: Function) -> Trial | None:
        """The check whether a function changes its inputs, where it is made on this block: on the
        first one that has a row, and again on the 128th, 256th, 512th, …"""
        number = self._count(function, "inputs")
        is_due = number == 1 or (number >= _CHECK_AGAIN and number & (number - 1) == 0)
        return Trial(function) if is_due else None

    def _count(self, function: Function, check: str) -> int:
        """The number of this block among those that count for a check."""
        key = (id(function.fn), function.reads, check)
        if key not in self._blocks:
            self._keep.append(function.fn)
        number = self._blocks[key] = self._blocks.get(key, 0) + 1
        return number

    def note_checked(self, function: Function) -> None:
        self._checked.add(id(function.fn))

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
            self._built[key] = _build(function)
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


def _build(function: Function) -> Callable[..., Any]:
    """Builds the object with the generators seeded, so that random weights are the same in each
    worker."""
    with GATE.alone():
        before = GlobalStates.now()
        try:
            next(seeding(ALL, [0]))
            built: Callable[..., Any] = function.fn.build()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise StepError(
                f"the @stateful class {function.name} ({function.where}) cannot be built: "
                f"{in_words(error)}\n{user_traceback(error).rstrip()}"
            ) from error
        finally:
            before.restore()
    return built


Outcome = tuple[list[Any], np.ndarray | None]
"""Results, and a mask of the rows that have one (None: all)."""


Arguments = Callable[[Trial | None], list[list[Any]]]
"""Makes the arguments of all rows, a list for each parameter: anew for each attempt, since a
function may change what it owns."""


def call_rows(
    function: Function,
    rows: Rows,
    worker: Worker,
    step_id: str,
    label: str,
    arguments: Arguments | None = None,
) -> list[Any]:
    """The function's result for every row. Rows on which it failed are noted and dropped."""
    fn = worker.callable(function)
    trial = worker.trial(function) if len(rows) else None
    make = arguments or functools.partial(call_arguments, function, rows.columns)
    draw = rows.draw(step_id)
    failed = len(rows.failures)

    def attempt(seeded: frozenset[str]) -> Outcome:
        del rows.failures[failed:]
        found = None
        if not (function.takes_rng or function.keywords or seeded or function.marks.owns):
            found = _call_at_once(fn, rows, make(trial))
        outcome = found or _call_one_by_one(fn, function, rows, draw, label, make(trial), seeded)
        if trial is not None:
            trial.check()
        return outcome

    began = time.perf_counter()
    results, good = watched(function.fn, worker, attempt)
    if len(rows):
        worker.seconds_per_row[id(function.fn)] = (time.perf_counter() - began) / len(rows)
    if good is None:
        return results
    rows.keep(good)
    return list(compress(results, good.tolist()))


def watched(owner: Any, worker: Worker, attempt: Callable[[frozenset[str]], T]) -> T:
    """Calls `attempt(names)` and watches the global generators. It seeds those in `names` for each
    row, and is called again if it draws from others."""
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


GATE.passers = frozenset((_build.__code__, watched.__code__))


def _call_at_once(fn: Callable[..., Any], rows: Rows, arguments: list[list[Any]]) -> Outcome | None:
    """The results of all rows; None if one of them raised."""
    try:
        if not arguments:
            return [fn() for _ in range(len(rows))], None
        if len(arguments) == 1 and type(fn) is FunctionType:
            results = [fn(x) for x in arguments[0]]  # Python calls Python 5 to 20 % faster than C
        else:
            results = list(map(fn, *arguments))
        if len(results) == len(rows):  # fewer where a row raised StopIteration
            return results, None
    except KeyboardInterrupt:
        raise
    except BaseException:
        if not len(rows):
            raise
    return None


def call_columns(fn: Callable[..., Any], function: Function, given: list[Any], draw: Draw) -> Any:
    """The function's result for whole columns, with the generator of the first row of `draw`."""
    plain = given[: len(given) - len(function.keywords)]
    named = dict(zip(function.keywords, given[len(plain) :], strict=True))
    if function.takes_rng:
        named["rng"] = next(draw.generators())
    return fn(*plain, **named)


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
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is that row's
            rows.fail(i, label, error)
            if context.on_error == "substitute":
                results.append(context.substituted())
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
