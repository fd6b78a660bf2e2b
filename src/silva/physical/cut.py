"""A stage cut in two, so that each part can run where it is fastest.

    read → image = decode → words = parse(caption) → keep image, words

cut before `parse` is `read → decode` on threads and `parse` in processes. Of what the first part
makes, the second is given only the columns that it reads: `caption` travels, `image` stays where it
is and joins the result afterwards. What the two make together is, bit for bit, what the stage would
have made: one result, with the rows it came of and the failures of both in their order. So states,
caches and failures do not know of cuts.

A stage is not cut after an explode: where it may stop within a row is a matter of one part. Nor
before a step that replaces all columns (`rename`, `map_rows`), but for the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from silva.columns import Block
from silva.physical.context import Failure
from silva.physical.stage import Result, Stage, step_reads_of
from silva.physical.steps import MapWhole, Project, Spread, Step


@dataclass(frozen=True, eq=False)
class Cut:
    at: int
    """Steps of the first part."""
    first: Stage
    second: Stage
    sent: tuple[str, ...]
    """Columns that the second part is given."""
    names: tuple[tuple[str, str], ...]
    """(old, new): the columns that come out, in order; those that the second part does not give
    are the first part's."""


def places(stage: Stage) -> list[int]:
    """After how many of its steps a stage may be cut."""
    *steps, last = stage.steps or (None,)
    if not isinstance(last, Project):
        return []
    return [
        at
        for at in range(1, len(steps))
        if not any(isinstance(step, Spread) for step in steps[:at])
        and not any(isinstance(step, Project | MapWhole) for step in steps[at:])
    ]


def live(stage: Stage, at: int) -> frozenset[str]:
    """The columns that are needed after the first `at` steps: by a step, or in the end."""
    *steps, last = stage.steps
    assert isinstance(last, Project)
    needed = {old for old, _ in last.names}
    for step in reversed(steps[at:]):
        needed = needed - set(written(step)) | _reads(step)
    return frozenset(needed)


def written(step: Step) -> tuple[str, ...]:
    """The columns that a step writes."""
    return (step.column,) if isinstance(step, Spread) else getattr(step, "into", ())


def _reads(step: Step) -> set[str]:
    """The columns that a step reads, of those that may come after a cut."""
    return {step.column} if isinstance(step, Spread) else step_reads_of(step) or set()


def cut(stage: Stage, at: int) -> Cut:
    """The stage in two, the first with `at` steps; `at` is one of its `places`."""
    *steps, last = stage.steps
    assert isinstance(last, Project)
    first, second = steps[:at], steps[at:]
    kept = tuple(sorted(live(stage, at)))
    made = {name for step in second for name in written(step)}
    reads = {name for step in second for name in _reads(step)}
    gives = tuple((old, old) for old in dict.fromkeys(old for old, _ in last.names if old in made))
    return Cut(
        at,
        replace(stage, steps=(*first, Project(tuple((n, n) for n in kept))), written=None),
        Stage((*second, Project(gives))),
        tuple(name for name in kept if name in reads),
        last.names,
    )


def given(how: Cut, first: Result) -> Block:
    """What the second part is given of what the first has made."""
    block = first.block
    return block.with_columns({name: block.columns[name] for name in how.sent})


def composed(how: Cut, first: Result, second: Result) -> Result:
    """What the whole stage makes of the first part's input."""
    columns = dict(first.block.columns)
    stays = {old for old, _ in how.names} - set(second.block.columns)
    if second.origin is not None:
        columns |= {name: columns[name].take(second.origin) for name in stays}
    columns |= second.block.columns
    picked = {new: columns[old] for old, new in how.names}
    return replace(
        joined(first, second),
        block=second.block.with_columns(picked),
        uses=(*first.uses[: how.at + 1], *second.uses[1:]) if first.uses else (),
    )


def joined(first: Result, second: Result) -> Result:
    """The result of two stages as one, given that of the first and what the second made of it."""
    return Result(
        block=second.block,
        size_in=first.size_in,
        origin=_origin(first.origin, second.origin),
        subs=second.subs,
        failures=_failures(first, second),
        seconds=first.seconds + second.seconds,
        cpu=first.cpu + second.cpu,
        late=first.late,
        again=first.again or second.again,
        moved=first.moved or second.moved,
        seeded=first.seeded or second.seeded,
        bytes_in=first.bytes_in,
        came=first.came.plus(second.came),
    )


def _origin(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    if first is None or second is None:
        return first if second is None else second
    found: np.ndarray = first[second]
    return found


def _failures(first: Result, second: Result) -> tuple[Failure, ...]:
    """Of both parts, each with the row that came into the first."""
    origin = first.origin
    later = second.failures
    if origin is not None:
        later = tuple(replace(failure, row=int(origin[failure.row])) for failure in later)
    return tuple(sorted((*first.failures, *later), key=lambda f: (f.row, f.part)))
