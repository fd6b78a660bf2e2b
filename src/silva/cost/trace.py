"""Traces: what happened on which resource and when, in one form for simulated and real runs.

A trace is saved in Chrome's trace format, which ui.perfetto.dev and chrome://tracing show. The
format is JSON: complete events (`ph: X`) with `ts` and `dur` in microseconds, metadata events
(`ph: M`) that name processes and threads, and counters (`ph: C`) for what is held.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from silva.folders import write_file
from silva.plan.arguments import path_of

_ADVICE = "The trace is incomplete: free some space, or write it to another disk"
ROUNDING = 1e-12
"""Moments and speeds that differ by less than this share are the same."""


class Span(NamedTuple):
    """A task on a resource, from one moment to another; seconds."""

    name: str
    resource: str
    start: float
    end: float
    amount: float = 0.0
    """What was done: bytes, seconds of work, rows; or what was held."""
    held: bool = False
    """Whether the resource was only held, as a slot or memory is."""


@dataclass(frozen=True)
class Trace:
    """What happened on which resource and when, in a simulated run or in a real one."""

    spans: tuple[Span, ...]
    finished: Mapping[str, float] = field(default_factory=dict)
    """The end of each simulated task."""

    @property
    def makespan(self) -> float:
        """Seconds from 0 to the end of the last task or span."""
        return max((*self.finished.values(), *(span.end for span in self.spans)), default=0.0)

    def busy(self, resource: str) -> float:
        """Seconds in which the resource was used by at least one task."""
        busy, until = 0.0, -math.inf
        for span in sorted(self._of(resource), key=lambda span: span.start):
            busy += max(span.end - max(span.start, until), 0.0)
            until = max(until, span.end)
        return busy

    def work(self, resource: str) -> float:
        """The amount that was done on the resource."""
        return math.fsum(span.amount for span in self._of(resource) if not span.held)

    def peak(self, resource: str) -> float:
        """The largest amount of the resource that was held at the same time."""
        return max((amount for _, amount in self._levels(resource)), default=0.0)

    def save(self, path: str | Path) -> Path:
        """Writes the trace as JSON, for ui.perfetto.dev or chrome://tracing."""
        return save_traces(path, {"silva": self})

    def _of(self, resource: str) -> Iterator[Span]:
        return (span for span in self.spans if span.resource == resource)

    def _levels(self, resource: str) -> Iterator[tuple[float, float]]:
        """The moments at which the held amount changes, and the amount from then on."""
        held = [span for span in self._of(resource) if span.held]
        edges = [(s.end, -s.amount) for s in held] + [(s.start, s.amount) for s in held]
        level = 0.0
        for moment, change in sorted(edges):  # what is given back at a moment comes before
            level += change
            yield moment, level

    def events(self, process: int) -> Iterator[dict[str, object]]:
        """The events of Chrome's trace format. Spans that overlap on a resource get a row each;
        what is held is drawn as a line."""
        thread = 0
        for name in dict.fromkeys(span.resource for span in self.spans):
            for moment, level in self._levels(name):
                value = {"held": level}
                yield {"ph": "C", "name": name, "pid": process, "ts": moment * 1e6, "args": value}
            free: list[tuple[float, int]] = []
            used = [span for span in self._of(name) if not span.held]
            for span in sorted(used, key=lambda span: span.start):
                if free and free[0][0] <= span.start * (1 + ROUNDING):
                    row = heapq.heappop(free)[1]
                else:
                    thread, row = thread + 1, thread + 1
                    yield _name("thread_name", process, f"{name} #{len(free) + 1}", tid=row)
                heapq.heappush(free, (span.end, row))
                yield {
                    "ph": "X", "name": span.name, "cat": name, "pid": process, "tid": row,
                    "ts": span.start * 1e6, "dur": (span.end - span.start) * 1e6,
                    "args": {"amount": span.amount},
                }  # fmt: skip


def save_traces(path: str | Path, traces: Mapping[str, Trace]) -> Path:
    """Writes traces side by side into one file, each as a process of its name; times in µs."""
    events: list[dict[str, object]] = []
    for process, (name, trace) in enumerate(traces.items(), 1):
        events += [_name("process_name", process, name), *trace.events(process)]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    return write_file(path_of("save(…)", path), text, _ADVICE)


def _name(kind: str, process: int, name: str, tid: int = 0) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": process, "tid": tid, "args": {"name": name}}
