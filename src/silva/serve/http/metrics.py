"""What a served pipeline has done, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from silva.run.failures import Skip, Substitute
from silva.serve.engine.refresh import Refreshing
from silva.serve.http.access import Accounts
from silva.serve.http.replies import Replies, shown

_BOUNDS = tuple(2.0**n / 1024 for n in range(17))
"""Upper ends of the latency histogram in seconds: from 1 ms to 64 s, each twice the one before, so
that a quantile is known within a factor of two."""
_MODEL_COUNTS = (
    "calls",
    "retries",
    "failures",
    "prompt_tokens",
    "computed_tokens",
    "answer_tokens",
    "money",
)


class Metrics:
    """Counters of one app."""

    def __init__(
        self, engine: Refreshing, accounts: Accounts, replies: Replies, on_error: Any
    ) -> None:
        self._engine = engine
        self._accounts = accounts
        self._shown = replies
        self._ends = {Skip: "skips", Substitute: "substitutes"}.get(type(on_error), "failures")
        self._replies: Counter[int] = Counter()
        self._failed: Counter[str] = Counter()
        self._seconds = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self.hang_ups = 0

    def count(self, status: int) -> None:
        self._replies[status] += 1

    def took(self, seconds: float) -> None:
        """Counts an admitted request by its latency."""
        self._seconds += seconds
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1

    def failed(self, steps: Iterable[str]) -> None:
        """Counts the rows on which these steps failed."""
        for step in steps:
            self._failed[self._shown.step(step)] += 1

    def text(self) -> str:
        return "\n".join([*self._of_requests(), *self._of_steps(), *self._of_tenants(), ""])

    def _of_requests(self) -> Iterator[str]:
        yield "# TYPE silva_replies_total counter"
        for status, count in sorted(self._replies.items()):
            yield f'silva_replies_total{{status="{status}"}} {count}'
        yield "# TYPE silva_hang_ups_total counter"
        yield f"silva_hang_ups_total {self.hang_ups}"
        yield "# TYPE silva_request_seconds histogram"
        counts = list(accumulate(self._buckets))
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), counts, strict=True):
            yield f'silva_request_seconds_bucket{{le="{bound}"}} {count}'
        yield f"silva_request_seconds_sum {self._seconds:.6f}"
        yield f"silva_request_seconds_count {counts[-1]}"

    def _of_steps(self) -> Iterator[str]:
        stations = self._engine.stations
        names = [f'number="{s.unit.number}",step="{_text(shown(s.unit))}"' for s in stations]
        for metric, kind, values in (
            ("batches_total", "counter", [str(s.batches) for s in stations]),
            ("rows_total", "counter", [str(s.rows) for s in stations]),
            ("shared_total", "counter", [str(s.shared) for s in stations]),
            ("overtakes_total", "counter", [str(s.overtakes) for s in stations]),
            ("abandoned", "gauge", [str(s.abandoned) for s in stations]),
            ("waiting", "gauge", [str(len(s.waiting)) for s in stations]),
            ("seconds", "gauge", [f"{s.curve.seconds(1):.6g}" for s in stations]),
        ):
            yield f"# TYPE silva_step_{metric} {kind}"
            for name, value in zip(names, values, strict=True):
                yield f"silva_step_{metric}{{{name}}} {value}"
        yield "# TYPE silva_refreshes_total counter"
        yield f"silva_refreshes_total {self._engine.refreshes}"
        yield f"# TYPE silva_step_{self._ends}_total counter"
        for step, count in sorted(self._failed.items()):
            yield f'silva_step_{self._ends}_total{{step="{_text(step)}"}} {count}'

    def _of_tenants(self) -> Iterator[str]:
        accounts = [(f'tenant="{_text(one.name)}"', one) for one in self._accounts]
        yield "# TYPE silva_in_flight gauge"
        for name, one in accounts:
            yield f"silva_in_flight{{{name}}} {one.flying}"
        yield "# TYPE silva_refused_total counter"
        for name, one in accounts:
            yield f"silva_refused_total{{{name}}} {one.refused}"
        for metric in _MODEL_COUNTS:
            yield f"# TYPE silva_model_{metric}_total counter"
            for name, one in accounts:
                yield f"silva_model_{metric}_total{{{name}}} {one.tenant.purse.spent(metric):.9g}"


def _text(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", " ")
