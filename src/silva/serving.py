"""Verbs that answer requests with a pipeline: in a program, offline, and over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from silva.plan.arguments import explains_verbs, several
from silva.plan.node import Node

if TYPE_CHECKING:
    from silva.options import LoaderArguments
    from silva.pipeline import Pipeline
    from silva.serve.engine.program import Program
    from silva.serve.http.options import AsgiArguments, ServeArguments
    from silva.serve.http.server import Server
    from silva.serve.search.evaluation import Evaluation
    from silva.serve.search.tuning.constraints import Budget, Constraint
    from silva.serve.search.tuning.tuned import Tuned


@explains_verbs
class ServeVerbs:
    """The verbs of `Pipeline` that answer requests; it begins with `sv.requests`."""

    __slots__ = ("_program",)

    plan: Node
    _program: Program | None
    """The engine of `ask`, once it was used."""

    def over(self, rows: Iterable[Mapping[str, Any]]) -> Pipeline:
        """This pipeline over given requests: one that can be written, explained or looped over.

        >>> import silva as sv
        >>> answers = sv.requests("x").derive(y=lambda x: 2 * x)
        >>> answers.over([{"x": 1}, {"x": 2}]).head(1)
        [{'x': 1, 'y': 2}]
        """
        from silva.pipeline import Pipeline
        from silva.serve.requests import with_rows

        return Pipeline(with_rows(self.plan, rows))

    def run(
        self, rows: Iterable[Mapping[str, Any]], **arguments: Unpack[LoaderArguments]
    ) -> list[dict[str, Any]]:
        """Answers many requests and returns the rows, in their order. `arguments` are those of
        `loader`. To write the answers, or to go on after a crash: `over(rows).to_parquet(…)`.

        >>> import silva as sv
        >>> sv.requests("x").filter(lambda x: x > 1).run([{"x": 1}, {"x": 2}])
        [{'x': 2}]
        """
        with self.over(rows).loader(**arguments) as loader:
            return list(loader)

    def ask(self, *, deadline: float = 60.0, **row: Any) -> Any:
        """Answers one request in this program; None if a filter drops it.

        The first call plans the pipeline and opens its models, which stay open with the pipeline.

        >>> import silva as sv
        >>> sv.requests("x").derive(y=lambda x: 2 * x).ask(x=4)
        {'x': 4, 'y': 8}
        """
        return self._opened_program().ask(row, deadline)

    async def ask_async(self, *, deadline: float = 60.0, **row: Any) -> Any:
        """`ask` for programs with an event loop: many requests may wait at once, and costly steps
        run on batches of them."""
        import asyncio

        found = self._program
        if found is None or not found.is_here:  # opening models may take long
            found = await asyncio.to_thread(self._opened_program)
        return await found.ask_async(row, deadline)

    def asgi(self, **arguments: Unpack[AsgiArguments]) -> Any:
        """An ASGI app that answers requests, to be mounted in an app of your own."""
        from silva.serve.http.app import app_of

        return app_of(self.plan, **arguments)

    def serve(self, **arguments: Unpack[ServeArguments]) -> Server:
        """Answers requests over HTTP, on a thread, until the server is closed.

        `POST /` takes a JSON object with the columns of a request, and shows its `token`. See
        `ServeOptions`, `ListenOptions` and `ClusterOptions` for all arguments.
        """
        from silva.serve.http.server import Server

        return Server(self.plan, **arguments)

    def evaluate(self, dev: Iterable[Mapping[str, Any]], metric: Any) -> Evaluation:
        """How well the pipeline answers rows with known answers, with a 95 % interval.

        A row of `dev` holds the columns of a request and those that the metric compares with. A
        metric is `sv.exact_match("answer", "gold")`, `sv.f1(…)`, `sv.recall_at(…)`, a function of
        columns that returns a number, or an expression over them, such as a model that judges:
        `model.score("Is {answer} as good as {gold}?", "yes")`.

        >>> import silva as sv
        >>> doubled = sv.requests("x").derive(y=lambda x: 2 * x)
        >>> dev = [{"x": 1, "wanted": 2}, {"x": 2, "wanted": 5}]
        >>> doubled.evaluate(dev, lambda y, wanted: y == wanted).mean.value
        0.5
        """
        from silva.serve.search.evaluation import evaluate

        return evaluate(self.plan, several("evaluate(dev)", dev), metric)

    def tune(
        self,
        dev: Iterable[Mapping[str, Any]],
        *,
        maximize: Any,
        subject_to: Sequence[Constraint] = (),
        budget: Budget | None = None,
        delta: float = 0.05,
    ) -> Tuned:
        """Finds the best values of all choices, and which of them are worth what they cost.

        All configurations race on the rows of `dev` for `maximize`, a metric between 0 and 1 or a
        list of several. A step that several have alike runs once. `subject_to` lists constraints on
        what a request takes: `sv.p95("latency") <= 0.5`, seconds that it takes alone, or
        `sv.mean("cost") <= 2e-4`, the money that its models take. `budget`, such as
        `sv.Budget(seconds=60)`, bounds the search. A configuration is called worse, or said to
        break a constraint, only on evidence: the chance that any such claim is wrong is at most
        `delta`.

        `tuned.front` holds the configurations that nothing beats in all scores and in cost.
        `tuned.best` is the pipeline with the best score, an ordinary one; it refuses where the rows
        cannot tell which it is.

        >>> import silva as sv
        >>> x = sv.col("x")
        >>> open = sv.requests("x").derive(y=sv.choice(x + 1, x * 2, name="op"))
        >>> dev = [{"x": n, "wanted": 2 * n} for n in range(40)]
        >>> tuned = open.tune(dev, maximize=lambda y, wanted: y == wanted)
        >>> tuned.best.ask(x=4)
        {'x': 4, 'y': 8}
        """
        from silva.serve.search.tuning.tune import tune

        rows = several("tune(dev)", dev)
        return tune(self.plan, rows, maximize, subject_to=subject_to, budget=budget, delta=delta)

    def calibrate(
        self,
        dev: Iterable[Mapping[str, Any]],
        metric: Any,
        *,
        epsilon: float,
        delta: float,
        column: str | None = None,
    ) -> Pipeline:
        """The pipeline with the loosest threshold in its cascade whose loss is bounded: the chance
        that the metric loses more than `epsilon` against the large model is at most `delta`.

        `dev` and `metric` are those of `evaluate`; the metric lies between 0 and 1. Both models
        answer all of the rows. `explain()` says what is promised, and how it was checked. Where
        there are several cascades, `column` names the one to calibrate.

        >>> import silva as sv
        >>> x = sv.col("x")
        >>> both = sv.requests("x").derive(y=sv.cascade(x * 0, x % 2, accept=x))
        >>> dev = [{"x": n, "wanted": n % 2 if n < 100 else 0} for n in range(300)]
        >>> kept = both.calibrate(dev, lambda y, wanted: y == wanted, epsilon=0.1, delta=0.1)
        >>> kept.ask(x=1), kept.ask(x=201)
        ({'x': 1, 'y': 1}, {'x': 201, 'y': 0})
        """
        from silva.pipeline import Pipeline
        from silva.serve.search.calibration import calibrated

        return Pipeline(
            calibrated(
                self.plan,
                several("calibrate(dev)", dev),
                metric,
                epsilon=epsilon,
                delta=delta,
                column=column,
            )
        )

    def _opened_program(self) -> Program:
        """The engine of `ask`, opened once in each process."""
        from silva.serve.engine.program import Program, opening

        found = self._program
        if found is not None and found.is_here:
            return found
        with opening():
            found = self._program
            if found is None or not found.is_here:
                found = self._program = Program(self.plan)
            return found
