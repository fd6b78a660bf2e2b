"""`sv.concat`, `sv.zip`, `sv.mix`: one pipeline of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from silva.errors import PlanError
from silva.order.mixing import check_schedule
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.verify import verify


def concat(pipelines: Sequence[Pipeline]) -> Pipeline:
    """All rows of the first pipeline, then of the next, and so on.

    >>> import silva as sv
    >>> both = sv.concat([sv.from_columns({"x": [1]}), sv.from_columns({"x": [2]})])
    >>> [row["x"] for row in both]
    [1, 2]
    """
    return _combined(logical.Concat(_plans("concat", pipelines)))


def zip(
    pipelines: Sequence[Pipeline], *, stop: Literal["strict", "shortest"] = "strict"
) -> Pipeline:
    """Row by row, the columns of all pipelines side by side.

    >>> import silva as sv
    >>> pairs = sv.zip([sv.from_columns({"x": [1, 2]}), sv.from_columns({"y": [3, 4]})])
    >>> pairs.head(1)
    [{'x': 1, 'y': 3}]
    """
    if stop not in ("strict", "shortest"):
        raise PlanError(f"zip(stop=…) is 'strict' or 'shortest', not {stop!r}")
    return _combined(logical.Zip(_plans("zip", pipelines), stop))


def mix(
    pipelines: Sequence[Pipeline],
    weights: Sequence[float] | Mapping[int, Sequence[float]] | None = None,
    *,
    seed: int = 0,
    stop: Literal["all", "first", "repeat"] = "all",
) -> Pipeline:
    """Rows of several pipelines in given proportions; a dict {row: weights} is a schedule.

    `stop="all"` gives every row once, `"first"` ends with the first pipeline that runs out, and
    `"repeat"` starts short pipelines anew until the longest has ended.

    >>> import silva as sv
    >>> a, b = sv.from_columns({"x": [0] * 6}), sv.from_columns({"x": [1] * 3})
    >>> sum(row["x"] for row in sv.mix([a, b], weights=[2, 1]).head(6))
    2
    """
    plans = _plans("mix", pipelines)
    if stop not in ("all", "first", "repeat"):
        raise PlanError(f"mix(stop=…) is 'all', 'first' or 'repeat', not {stop!r}")
    given = {0: [1.0] * len(plans)} if weights is None else weights
    by_row = given if isinstance(given, Mapping) else {0: given}
    schedule = tuple(
        (int(at), tuple(float(w) for w in some)) for at, some in sorted(by_row.items())
    )
    check_schedule(schedule, len(plans))
    return _combined(logical.Mix(plans, schedule, int(seed), stop))


def _plans(verb: str, pipelines: Sequence[Pipeline]) -> tuple[logical.Node, ...]:
    found = tuple(pipelines)
    if not found or not all(isinstance(p, Pipeline) for p in found):
        raise PlanError(f"{verb} takes a list of pipelines")
    return tuple(p.plan for p in found)


def _combined(node: logical.Node) -> Pipeline:
    verify(node)
    return Pipeline(node)
