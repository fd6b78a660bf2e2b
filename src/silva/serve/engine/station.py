"""One unit with the requests that wait for it: who waits, who runs, how long it takes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from silva.serve.engine.curve import Curve
from silva.serve.engine.flights import Batch, Flight
from silva.serve.engine.prefixes import Beginning, Prefixes
from silva.serve.engine.quickness import Quickness
from silva.serve.engine.same import Same
from silva.serve.engine.threads import Threads
from silva.serve.engine.units import Effect, Part, Unit
from silva.serve.engine.width import MOST_THREADS, Width
from silva.serve.models.model import Model, ModelRef


class Elsewhere(Protocol):
    """A step that runs on other machines."""

    most: int
    """Batches that may be on their way at once."""

    def effects(self, parts: Sequence[Part], /) -> Sequence[Effect]:
        """What the step makes of each request of a batch."""


@dataclass(eq=False)
class Station:
    """One unit with the requests that wait for it."""

    unit: Unit
    most: int
    """Batches that may run at once, at most."""
    is_measured: bool
    """Whether it is worth as many threads as it was seen to keep waiting; else `most` of them."""
    same: Same | None
    """Equal questions, where it may answer them once."""
    quick: Quickness
    prefixes: Prefixes | None = None
    """The prompts of its requests, where it asks those that begin alike one after another."""
    waiting: OrderedDict[Flight, Beginning] = field(default_factory=OrderedDict)
    """In the order of their arrival; how the prompt of each begins."""
    running: dict[Flight, Batch] = field(default_factory=dict)
    busy: int = 0
    """Slots that are taken."""
    abandoned: int = 0
    """Calls that nobody awaits, but that have not returned."""
    curve: Curve = field(default_factory=Curve)
    width: Width = field(default_factory=Width)
    keying: Curve = field(default_factory=Curve)
    """What it costs to find out whether a request is like another one."""
    due: bool = False
    """Whether it runs in this turn of the loop."""
    batches: int = 0
    rows: int = 0
    is_own: bool = False
    """Whether its results were seen to be a request's own, or not to be copied."""
    shared: int = 0
    """Requests that got a copy of what was made for another one."""
    overtakes: int = 0
    """Batches in which the request that had waited longest was left behind."""
    threads: Threads = field(default_factory=Threads)
    elsewhere: Elsewhere | None = None
    """Where it runs, if not in this process; its threads then wait for results."""

    @property
    def slots(self) -> int:
        """How many batches may run at once."""
        if self.elsewhere is not None:
            return self.elsewhere.most
        if self.quick.in_place:
            return 1
        return min(self.width.threads, self.most) if self.is_measured else self.most

    @property
    def expected(self) -> float:
        """The seconds that one more request takes here, with those that wait already."""
        return self.curve.seconds(1 + len(self.waiting) // self.slots)

    @property
    def shares(self) -> bool:
        """Whether equal questions are asked once, and looking for them costs less than asking."""
        if self.same is None or self.quick.in_place or self.is_own:
            return False
        return not self.batches or self.curve.seconds(1) > self.keying.seconds(1)

    def learn(self, rows: int, seconds: float, handing_over: float) -> None:
        """Notes what a batch took; `handing_over`: the seconds that it takes to hand one to a
        thread."""
        self.batches += 1
        self.rows += rows
        self.curve.add(rows, seconds)
        if not self.unit.asks and self.elsewhere is None:
            self.quick.add(rows, seconds, handing_over)

    def is_awaited(self, flight: Flight) -> bool:
        """Whether anybody awaits what the unit makes of this request."""
        return not flight.over or (self.same is not None and self.same.is_awaited(flight))

    def who_awaits(self, flight: Flight) -> list[Flight]:
        """The request, and those that follow it."""
        return [flight, *(self.same.followers(flight) if self.same is not None else ())]

    def enter(self, flight: Flight) -> None:
        """Puts a request into the queue."""
        self.waiting[flight] = () if self.prefixes is None else self.prefixes.beginning(flight)

    def take(self, most: int, free: int = 0) -> list[Flight]:
        """The requests of the next batch: those that have waited longest, of which a step whose
        prompts begin alike may leave the first `free` ones behind. A batch that asks a model is
        about requests of one tenant."""
        one_tenant = bool(self.unit.asks)
        chosen: list[Flight] = []
        given_up: list[Flight] = []
        order = self.waiting if self.prefixes is None else self.prefixes.ordered(self.waiting, free)
        for flight in order:
            if flight.over and not self.is_awaited(flight):
                given_up.append(flight)
            elif not one_tenant or not chosen or flight.tenant == chosen[0].tenant:
                chosen.append(flight)
                if self.prefixes is not None:
                    self.prefixes.asked(self.waiting[flight])
            if len(chosen) == most:
                break
        for flight in given_up:
            self.settle(flight)
        if self.prefixes is not None and chosen:
            oldest = next(one for one in self.waiting if one not in given_up)
            self.overtakes += oldest not in chosen
        if len(chosen) + len(given_up) == len(self.waiting):
            self.waiting.clear()
        for flight in (*given_up, *chosen) if self.waiting else ():
            del self.waiting[flight]
        return chosen

    def settle(self, flight: Flight) -> list[Flight]:
        """The requests that have followed this one; from now on, equal ones are asked anew."""
        return [] if self.same is None else self.same.settle(flight)


def station(unit: Unit) -> Station:
    """A unit without functions of the user and without models runs on the loop, any other on
    threads until it is known to be quick. A model says how many batches it takes at once; a class
    is built as often as it is offline, and a function of whole columns runs on large batches."""
    models = [dict(call.params).get("model") for call in unit.asks]
    opened = [found.model for found in models if found is not None]
    limits = [getattr(model, "concurrency", 1) for model in opened if isinstance(model, Model)]
    most = min(limits, default=MOST_THREADS)
    if any(function.marks.batched for function in unit.functions):
        most = 1
    elif unit.is_stateful:
        most = os.cpu_count() or 1
    same = None
    if unit.may_share:
        reads = unit.step.reads
        same = Same(None if reads is None else sorted(reads))
    in_place = not unit.asks and not unit.functions
    curve = Curve(_cheap_rows(unit))
    quick = Quickness(in_place)
    return Station(unit, most, not limits, same, quick, Prefixes.of(unit), curve=curve)


def _cheap_rows(unit: Unit) -> int:
    """The rows that the first batch takes: as many as all of its models call cheap."""
    asked = [(call.op.removeprefix("model."), dict(call.params).get("model")) for call in unit.asks]
    return min(
        (ref.model.cheap_rows(op) for op, ref in asked if isinstance(ref, ModelRef)), default=1
    )
