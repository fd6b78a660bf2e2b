"""Answers requests as they come: each unit of a plan runs on batches across requests.

Everything here happens on the thread of one event loop; only costly units run on other threads. A
unit that runs in place takes all rows that arrived in the same turn of the loop. A costly one takes
what waits as soon as one of its slots is free, as many rows as its measured curve allows within the
objective: nothing waits for company.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, Failure
from silva.plan.node import Node, option
from silva.plan.schema import columns, verify
from silva.run.failures import Substitute
from silva.serve.curve import Curve
from silva.serve.models.model import Model
from silva.serve.requests import Row, checked, identity_of, source_of
from silva.serve.threads import Threads
from silva.serve.units import Part, Unit, run_unit, units_of


@dataclass(frozen=True)
class Outcome:
    """How a request ended: with rows, dropped by a filter, or with failures."""

    rows: list[Row]
    dropped_by: str | None = None
    failures: tuple[Failure, ...] = ()
    exploded: bool = False
    """Whether a step made several rows of the request."""
    substituted: bool = False
    """Whether the rows hold substitutes for what failed."""


class Late(Exception):
    """The deadline of a request has passed."""

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"the deadline has passed; the request waits for `{waits_for}`")


@dataclass(eq=False)
class _Flight(Part):
    """A request on its way."""

    done: asyncio.Future[Outcome] = field(kw_only=True)
    began: float = field(kw_only=True)
    deadline: float = field(kw_only=True)
    """When it must have ended, on the clock of the loop."""
    left: list[int] = field(kw_only=True)
    """For each unit, how many others it still waits for."""
    running: set[int] = field(default_factory=set)
    ended: int = 0
    """Units that have run."""

    @property
    def over(self) -> bool:
        return self.done.done()


@dataclass(eq=False)
class _Station:
    """One unit with the requests that wait for it."""

    unit: Unit
    slots: int
    """How many batches may run at once."""
    waiting: deque[_Flight] = field(default_factory=deque)
    busy: int = 0
    curve: Curve = field(default_factory=Curve)
    in_place: bool = False
    """Whether it runs on the thread of the loop."""
    due: bool = False
    """Whether it runs in this turn of the loop."""
    batches: int = 0
    rows: int = 0


class Engine:
    """A plan that answers requests."""

    def __init__(
        self,
        plan: Node,
        *,
        slo: float | None = None,
        seed: int | None = None,
        on_error: Any = "raise",
    ) -> None:
        """`slo`: seconds within which a request should be answered; batches are as large as that
        allows. `seed`: of all random steps, by default that of the plan. `on_error`: a
        `Substitute` takes the place of what fails."""
        verify(plan)
        self.names = source_of(plan).names
        self.columns = columns(plan)
        self._slo = slo
        with Loader(plan, LoaderOptions(backend="inline")) as loader:
            units = units_of(loader.facts().plan)
        chosen = int(option(plan, "seed", 0)) if seed is None else seed
        self._substitutes = isinstance(on_error, Substitute)
        self._context = Context(chosen, 0, "skip")
        if isinstance(on_error, Substitute):
            self._context = Context(chosen, 0, "substitute", on_error.value)
        self._worker = Worker(shares_generators=False)
        self._threads = Threads()
        self._handing_over = Curve()
        self._left = [len(unit.after) for unit in units]
        self._next: list[list[int]] = [[] for _ in units]
        for unit in units:
            for before in unit.after:
                self._next[before].append(unit.number)
        self._first = [unit.number for unit in units if not unit.after]
        self.stations = [_station(unit) for unit in units]
        self._count = len(units)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, row: Mapping[str, Any], *, deadline: float) -> Outcome:
        """Answers one request within so many seconds. A `PlanError` says what is wrong with it."""
        given = checked(self.names, row)
        loop = self._loop = asyncio.get_running_loop()
        now = loop.time()
        flight = _Flight(
            identity_of(self.names, given),
            [given],
            done=loop.create_future(),
            began=now,
            deadline=now + deadline,
            left=self._left.copy(),
        )
        timer = loop.call_at(flight.deadline, self._expire, flight)
        try:
            if not self._count:
                self._end(flight)
            for number in self._first:
                self._enter(number, flight)
            return await flight.done
        finally:
            timer.cancel()

    def close(self) -> None:
        self._threads.close()

    def _expire(self, flight: _Flight) -> None:
        if not flight.over:
            waits = min(flight.running, default=0)
            flight.done.set_exception(Late(self.stations[waits].unit.label or "the end"))

    def _enter(self, number: int, flight: _Flight) -> None:
        station = self.stations[number]
        flight.running.add(number)
        station.waiting.append(flight)
        assert self._loop is not None
        if not station.due:
            station.due = True
            self._loop.call_soon(self._turn, station)

    def _turn(self, station: _Station) -> None:
        """Runs what waits for a unit, or hands it to threads."""
        station.due = False
        assert self._loop is not None
        while station.waiting and station.busy < station.slots:
            batch = self._batch(station)
            if not batch:
                return
            if station.in_place:
                began = time.perf_counter()
                error = self._run(station.unit, batch, self._worker)
                self._ran(station, batch, time.perf_counter() - began, error)
                continue
            station.busy += 1
            self._threads.submit(self._job(station, batch, self._loop))

    def _job(
        self, station: _Station, batch: list[_Flight], loop: asyncio.AbstractEventLoop
    ) -> Callable[[Worker], None]:
        handed = time.perf_counter()

        def work(worker: Worker) -> None:
            began = time.perf_counter()
            error = self._run(station.unit, batch, worker)
            ended = time.perf_counter()
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(back, began, ended, error)

        def back(began: float, ended: float, error: BaseException | None) -> None:
            self._threads.finished()
            station.busy -= 1
            self._handing_over.add(1, time.perf_counter() - handed - (ended - began))
            self._ran(station, batch, ended - began, error)
            station.in_place = self._is_cheap(station)
            self._turn(station)

        return work

    def _is_cheap(self, station: _Station) -> bool:
        """Whether a row takes less time here than handing it over to a thread does."""
        if station.unit.asks:
            return False
        return station.curve.seconds(1) < self._handing_over.seconds(1)

    def _batch(self, station: _Station) -> list[_Flight]:
        """The requests of the next batch: those that have waited longest."""
        waiting = station.waiting
        while waiting and waiting[0].over:
            waiting.popleft().running.discard(station.unit.number)
        count = len(waiting)
        if not station.in_place and count > 1:
            free = station.slots - station.busy
            share = -(-count // free)
            count = min(share, station.curve.most_rows(self._slack(waiting[0]), count))
        batch = [waiting.popleft() for _ in range(count)]
        return [flight for flight in batch if not flight.over]

    def _slack(self, flight: _Flight) -> float:
        """Seconds that a batch with this request may take."""
        assert self._loop is not None
        until = flight.deadline if self._slo is None else flight.began + self._slo
        rest = sum(
            station.curve.seconds(1)
            for station in self.stations
            if flight.left[station.unit.number] and not station.in_place
        )
        return max(until - self._loop.time() - rest, 0.0)

    def _run(self, unit: Unit, batch: list[_Flight], worker: Worker) -> BaseException | None:
        """Runs a unit; returns what is not the failure of a row."""
        try:
            run_unit(unit, batch, self._context, worker)
        except Exception as error:  # noqa: BLE001  it is the step's: all of its requests fail
            return error
        return None

    def _ran(
        self, station: _Station, batch: list[_Flight], seconds: float, error: BaseException | None
    ) -> None:
        station.batches += 1
        station.rows += len(batch)
        station.curve.add(len(batch), seconds)
        number = station.unit.number
        for flight in batch:
            flight.running.discard(number)
            if flight.over:
                continue
            if error is not None:
                flight.done.set_exception(error)
                continue
            flight.ended += 1
            failed = flight.failures and not self._substitutes
            if flight.ended == self._count or failed or not flight.rows:
                self._end(flight)
                continue
            for after in self._next[number]:
                flight.left[after] -= 1
                if not flight.left[after]:
                    self._enter(after, flight)

    def _end(self, flight: _Flight) -> None:
        whole = not flight.failures or self._substitutes
        rows = [{name: row[name] for name in self.columns} for row in flight.rows] if whole else []
        exploded = flight.places is not None
        flight.done.set_result(
            Outcome(rows, flight.dropped_by, tuple(flight.failures), exploded, whole and bool(rows))
        )


def _station(unit: Unit) -> _Station:
    """A unit without functions of the user and without models runs in place. A model says how many
    batches it takes at once; a function runs on one thread until it is known to be cheap."""
    models = [dict(call.params).get("model") for call in unit.asks]
    opened = [found.model for found in models if found is not None]
    slots = min(
        (getattr(model, "concurrency", 1) for model in opened if isinstance(model, Model)),
        default=1,
    )
    asked = [
        model.cheap_rows(call.op.removeprefix("model."))
        for call, model in zip(unit.asks, opened, strict=False)
        if isinstance(model, Model)
    ]
    in_place = not unit.asks and not unit.runs_user_code
    return _Station(unit, slots, curve=Curve(min(asked, default=1)), in_place=in_place)
