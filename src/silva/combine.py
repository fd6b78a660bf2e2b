"""`sv.concat`, `sv.zip` and `sv.mix`: combine several pipelines into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from silva.errors import PlanError
from silva.order.mixing import check_schedule
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.arguments import explains, number, one_of, whole
from silva.plan.schema import verify


@explains
def concat(pipelines: Sequence[Pipeline]) -> Pipeline:
    """Reads all rows of the first pipeline, then those of the next, and so on.

    >>> import silva as sv
    >>> both = sv.concat([sv.from_columns({"x": [1]}), sv.from_columns({"x": [2]})])
    >>> [row["x"] for row in both]
    [1, 2]
    """
    return _combined(logical.Concat(_plans("concat", pipelines)))


@explains
def zip(
    pipelines: Sequence[Pipeline], *, stop: Literal["strict", "shortest"] = "strict"
) -> Pipeline:
    """Reads pipelines row by row and puts their columns side by side.

    Pipelines of different lengths are an error, unless `stop="shortest"`.

    >>> import silva as sv
    >>> pairs = sv.zip([sv.from_columns({"x": [1, 2]}), sv.from_columns({"y": [3, 4]})])
    >>> pairs.head(1)
    [{'x': 1, 'y': 3}]
    """
    one_of("zip(stop=…)", stop, "strict", "shortest")
    return _combined(logical.Zip(_plans("zip", pipelines), stop))


@explains
def mix(
    pipelines: Sequence[Pipeline],
    weights: Sequence[float] | Mapping[int, Sequence[float]] | None = None,
    *,
    seed: int = 0,
    stop: Literal["all", "first", "repeat"] = "all",
) -> Pipeline:
    """Mixes rows of several pipelines in given proportions.

    `weights` has one number per pipeline, by default 1; a dict {row: weights} is a schedule that
    changes them at these rows. `stop="all"` yields every row once, `"first"` stops when a pipeline
    runs out, and `"repeat"` restarts short pipelines until the longest has ended; it does not wait
    for a pipeline that has no weight, now or later.

    >>> import silva as sv
    >>> a, b = sv.from_columns({"x": [0] * 6}), sv.from_columns({"x": [1] * 3})
    >>> sum(row["x"] for row in sv.mix([a, b], weights=[2, 1]).head(6))
    2
    """
    plans = _plans("mix", pipelines)
    one_of("mix(stop=…)", stop, "all", "first", "repeat")
    given = {0: [1.0] * len(plans)} if weights is None else weights
    by_row = given if isinstance(given, Mapping) else {0: given}
    parts = [(whole("a row of mix(weights={row: …})", at), some) for at, some in by_row.items()]
    schedule = tuple((at, _weights(some)) for at, some in sorted(parts, key=lambda part: part[0]))
    check_schedule(schedule, len(plans))
    return _combined(logical.Mix(plans, schedule, whole("mix(seed=…)", seed), stop))


def _weights(given: Any) -> tuple[float, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise PlanError(f"mix(weights=…) takes one number for each pipeline, not {given!r}")
    return tuple(number("mix(weights=…)", weight) for weight in given)


def _plans(verb: str, pipelines: Sequence[Pipeline]) -> tuple[logical.Node, ...]:
    listed = isinstance(pipelines, Iterable) and not isinstance(pipelines, Pipeline)
    found = tuple(pipelines) if listed else ()
    if not found or not all(isinstance(p, Pipeline) for p in found):
        raise PlanError(f"{verb} takes a list of pipelines")
    return tuple(p.plan for p in found)


def _combined(node: logical.Node) -> Pipeline:
    verify(node)
    return Pipeline(node)
