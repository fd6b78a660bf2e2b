"""Verbs that read or inspect a pipeline: its loader, its columns, its plan and its speed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from silva.errors import PlanError
from silva.plan.arguments import explains, several
from silva.plan.node import Node, Shuffle, SkipRows
from silva.plan.schema import chosen_by_order, columns, types, verify
from silva.plan.show import show_node, show_plan

if TYPE_CHECKING:
    from silva.facts.why import Why
    from silva.insight.explanation import Explanation
    from silva.insight.forecast import Forecast
    from silva.insight.headroom import Headroom
    from silva.joins.leaks import Leaks
    from silva.loader import Loader
    from silva.options import LoaderArguments, ServiceArguments
    from silva.service.client import Served

_ANALYZED = 5.0
"""Seconds for which a pipeline runs to be measured."""


class InspectVerbs:
    """The verbs of `Pipeline` that read or inspect it."""

    __slots__ = ()

    plan: Node

    @overload
    def loader(
        self,
        *,
        service: str,
        **arguments: Unpack[ServiceArguments],
    ) -> Served: ...
    @overload
    def loader(
        self,
        **arguments: Unpack[LoaderArguments],
    ) -> Loader: ...
    def loader(self, **arguments: Any) -> Any:
        """Returns a loader, which runs the pipeline and yields its batches.

        Each `for` loop over the loader is one epoch: make one loader and reuse it. `epochs=n` says
        how many loops there will be. In a job of several ranks (torch.distributed, Ray Train), the
        loader reads the share of this rank, unless you pass `rank` and `world`.

        `LoaderOptions` documents every argument. With `service=`, a service runs the pipeline, and
        `ServiceOptions` documents the arguments.

        >>> import silva as sv
        >>> loader = sv.from_columns({"x": range(4)}).batch(2).loader(workers=0)
        >>> sum(int(batch["x"].sum()) for batch in loader)
        6
        """
        from silva.feed.ranks import ranks_here

        if "rank" not in arguments and "world" not in arguments:
            here = ranks_here()
            if here.world > 1:
                arguments = {"group": here.group, **arguments}
                arguments |= {"rank": here.rank, "world": here.world}
        if "service" in arguments:
            return self._service_loader(**arguments)
        loader = self._loader_of_all_rows(**arguments)
        if arguments.get("epochs") != 1:
            self._warn_of_skipped_shuffle()
        return loader

    def _warn_of_skipped_shuffle(self) -> None:
        for chooses, orders in chosen_by_order(self.plan):
            if isinstance(chooses, SkipRows) and isinstance(orders, Shuffle):
                warnings.warn(
                    f"`{show_node(chooses)}` after shuffle drops other rows in each "
                    "epoch, because each has another order, so it does not hold out fixed rows: "
                    "divide them with split(train=0.9, val=0.1), or put skip before shuffle",
                    stacklevel=3,
                )
                return

    def _service_loader(self, service: str, group: Any = None, **arguments: Any) -> Served:
        """Returns a loader that reads the pipeline from a service."""
        from silva.options import LoaderOptions, ServiceOptions, arguments_of, check_known
        from silva.service.client import Served

        verify(self.plan)
        ours = arguments_of(ServiceOptions)
        theirs = sorted(arguments_of(LoaderOptions) & (arguments.keys() - ours))
        if theirs:
            raise PlanError(
                f"loader(service=…) has no argument {theirs[0]!r}, because the service runs the "
                f"pipeline: set it there, sv.Service({{…}}, {theirs[0]}=…), if it has one"
            )
        check_known("loader", arguments, ServiceOptions)
        return Served(service, self.fingerprint, ServiceOptions(**arguments))

    def _loader_of_all_rows(self, **arguments: Unpack[LoaderArguments]) -> Loader:
        """Returns a loader of all rows, also in a job of several ranks."""
        from silva.loader import Loader  # the engine: not needed to write a pipeline
        from silva.options import LoaderOptions, check_known

        verify(self.plan)
        check_known("loader", arguments, LoaderOptions)
        return Loader(self.plan, LoaderOptions(**arguments))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1]}).derive(y=lambda x: x).columns
        ('x', 'y')
        """
        return columns(self.plan)

    @property
    def schema(self) -> dict[str, str | None]:
        """The type of each column; None if only a run would show it.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1]}).derive(y=lambda x: x).schema
        {'x': 'int64', 'y': None}
        """
        return types(self.plan)

    @property
    def fingerprint(self) -> str:
        """Identifies what the pipeline yields: a hash of its steps and its data, the same in every
        process.

        >>> import silva as sv
        >>> def pipeline(add):
        ...     return sv.from_columns({"x": [1]}).derive(y=sv.col("x") + add)
        >>> pipeline(2).fingerprint == pipeline(2).fingerprint
        True
        >>> pipeline(2).fingerprint == pipeline(3).fingerprint
        False
        """
        from silva.plan.fingerprint import fingerprint

        return fingerprint(self.plan)

    def check_leaks(
        self, time: str, *, known: str | Sequence[str] = (), times: int = 32, seed: int = 0
    ) -> Leaks:
        """Finds columns that depend on rows of joined tables from after the row's own time.

        Draws `times` of the values in the column `time` and runs their rows again, with everything
        that was not known by then removed from the joined tables. `known` names the columns of
        tables that say when a row was known; by default the time column of an as-of join, and for
        other joins the column called `time`. `docs/joins.md` describes what this proves.

        >>> import silva as sv
        >>> clicks = sv.from_columns({"user": [1, 2], "ts": [10, 10]})
        >>> totals = {"user": [1, 2], "ts": [9, 99], "total": [3, 8]}
        >>> leaks = clicks.join(totals, on="user", columns="total").check_leaks("ts")
        >>> print(leaks.found[0])
        total at 10: 8, but None was known
        >>> bool(clicks.asof_join(totals, by="user", on="ts").check_leaks("ts"))
        False
        """
        from silva.joins.leaks import check_leaks

        return check_leaks(self.plan, time, known, times, seed)

    def explain(
        self,
        analyze: bool = False,
        *,
        seconds: float = _ANALYZED,
        **arguments: Unpack[LoaderArguments],
    ) -> Explanation:
        """Shows the plan as written and the plan as run, with a reason for every difference.

        With `analyze=True`, runs the pipeline for one epoch, or for `seconds`, and shows where the
        time goes. `arguments` are those of `loader`.

        >>> import silva as sv
        >>> numbers = sv.from_columns({"x": [1]}).derive(y=lambda x: -x).select("x")
        >>> "nothing reads the columns that these steps write" in numbers.explain()
        True
        """
        with self._loader_of_all_rows(**arguments) as loader:
            if analyze:
                loader.measure(seconds)
            return loader.explain(analyze)

    def why(self, name: Any) -> Why:
        """Shows every rule, choice, stage and reason that concerns a column, an operator or a step.

        A step is named by its id, its function, or the name of its function.

        >>> import silva as sv
        >>> print(sv.from_columns({"x": range(4), "unused": range(4)}).select("x").why("unused"))
        `unused` is a column of source columns of 4 rows.
        It is not read, because no step needs it.
        """
        with self._loader_of_all_rows() as loader:
            return loader.why(name)

    @explains
    def what_if(
        self,
        *,
        seconds: float = _ANALYZED,
        on: Iterable[Mapping[str, Any]] | None = None,
        metric: Any = None,
        gold: Mapping[str, Any] | None = None,
        load: float | None = None,
        **asked: Any,
    ) -> Any:
        """Predicts how fast the pipeline would be under other conditions: `what_if(decode=0.5)`.

        Runs and measures the pipeline first, for one epoch or for `seconds`. `Loader.what_if`
        documents the questions.

        For a pipeline that answers requests, `what_if(on=rows, metric=…, gold={"hits": "passage",
        "answer": "gold_answer"})` says for each step how much the metric would gain if it were
        perfect, better or removed, and how much of the latency is saved if it took half of its
        time. `rows` and `metric` are those of `evaluate`. `gold` names the columns of the rows that
        hold what each step should have given; for hits, an id or a list of ids. The latency is that
        of one request at a time or, with `load=`, of so many that arrive per second; steps are
        timed for at most `seconds`, and not at all if that is 0. `answer=0.5`, `answer="perfect"`,
        `"better"`, `"removed"` or `"wider"` (twice as many at once) ask about changes of your own,
        all at once.

        >>> import silva as sv
        >>> answers = sv.requests("x").derive(hit=lambda x: x % 2).derive(y=lambda hit: hit)
        >>> dev = [{"x": n, "wanted": 1} for n in range(40)]
        >>> found = answers.what_if(
        ...     on=dev, metric=lambda y, wanted: y == wanted, gold={"hit": "wanted"}, seconds=0
        ... )
        >>> found.limit, found.steps[0].perfect.value
        ('hit', 0.5)
        """
        from silva.serve.requests import answers_requests

        if on is not None:
            from silva.serve.search.attribution.what_if import what_if

            rows = several("what_if(on=…)", on)
            return what_if(self.plan, rows, metric, gold, asked, load=load, seconds=seconds)
        for name, given in (("metric", metric), ("gold", gold), ("load", load)):
            if given is not None:
                raise PlanError(f"what_if({name}=…) is about rows with known answers: give on=rows")
        if answers_requests(self.plan):
            raise PlanError(
                "a pipeline that answers requests has no rows of its own: what_if(on=rows, …)"
            )
        with self._loader_of_all_rows() as loader:
            loader.measure(seconds)
            return loader.what_if(**asked)

    @explains
    def forecast(self, *, consumer: float = 0.0, **arguments: Unpack[LoaderArguments]) -> Forecast:
        """Predicts the rows per second that a loop over `loader(**arguments)` will reach, over all
        of its epochs and from its first moment on.

        Measures the first rows for half a second on this thread, and then for two seconds as the
        run will go, up to six where backends are still being compared. `consumer`: seconds that the
        body of the loop takes for a batch, without the wait for it.

        >>> import silva as sv
        >>> squares = sv.from_columns({"x": range(1000)}).derive(y=lambda x: x * x).batch(100)
        >>> found = squares.forecast(workers=0, consumer=0.01)
        >>> found.limit, found.rows_per_second < 10_000  # 100 rows in 10 ms
        ("the consumer's thread", True)
        """
        from silva.loader.forecasts import measured_forecast
        from silva.options import LoaderOptions, check_known

        verify(self.plan)
        check_known("forecast", arguments, LoaderOptions)
        return measured_forecast(self.plan, LoaderOptions(**arguments), consumer)

    def headroom(
        self, *, seconds: float = 2 * _ANALYZED, **arguments: Unpack[LoaderArguments]
    ) -> Headroom:
        """Measures for each step how fast the pipeline would be if every other step were free.

        Runs the pipeline for `seconds`, and then each step alone on blocks that reached it.
        `arguments` are those of `loader`.
        """
        with self._loader_of_all_rows(**arguments) as loader:
            return loader.headroom(seconds)

    def __repr__(self) -> str:
        return show_plan(self.plan)

    def _repr_html_(self) -> str:
        from silva.insight.pages import pipeline_html

        return pipeline_html(self.plan)
