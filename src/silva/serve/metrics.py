"""What a served pipeline has done, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from silva.serve.engine import Engine
from silva.serve.replies import short


class Metrics:
    """Counters of one app."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replies: Counter[int] = Counter()

    def count(self, status: int) -> None:
        self._replies[status] += 1

    def text(self) -> str:
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield "# TYPE silva_replies_total counter"
        for status, count in sorted(self._replies.items()):
            yield f'silva_replies_total{{status="{status}"}} {count}'
        for name, kind, words in (
            ("batches_total", "counter", "batches"),
            ("rows_total", "counter", "rows"),
            ("waiting", "gauge", "waiting"),
        ):
            yield f"# TYPE silva_step_{name} {kind}"
            for station in self._engine.stations:
                found = getattr(station, words)
                value = found if isinstance(found, int) else len(found)
                yield f"silva_step_{name}{{{_step(station.unit.label)}}} {value}"
        yield "# TYPE silva_step_seconds gauge"
        for station in self._engine.stations:
            seconds = station.curve.seconds(1)
            yield f"silva_step_seconds{{{_step(station.unit.label)}}} {seconds:.6g}"


def _step(label: str) -> str:
    text = short(label).replace("\\", r"\\").replace('"', r"\"").replace("\n", " ")
    return f'step="{text or "select"}"'
