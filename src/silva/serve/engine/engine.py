"""Answers requests as they come: each unit of a plan runs on batches across requests.

Everything here happens on the thread of one event loop; only costly units run on other threads, and
say what they make of the rows, which is put into the requests here. A unit that runs in place takes
all rows that arrived in the same turn of the loop. A costly one takes what waits as soon as one of
its slots is free, as many rows as its measured curve allows within the objective
(`schedule.py`): nothing waits for company.

Who gives up a request, by its deadline or by cancelling the task that awaits it, takes it out of
all queues. A batch that nobody awaits any more gives its slot back, also while it still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silva.errors import StepError
from silva.lifetime import close_at_exit, join_all
from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.global_generators import GATE
from silva.plan.node import Node, Options, option
from silva.plan.schema import columns, verify
from silva.run.failures import Substitute
from silva.serve.deadline import Limit
from silva.serve.engine.curve import Curve
from silva.serve.engine.flights import Batch, Flight, Late, Outcome
from silva.serve.engine.interrupted import Interrupted, interrupted
from silva.serve.engine.same import copied
from silva.serve.engine.schedule import Schedule
from silva.serve.engine.station import Elsewhere, Station, station
from silva.serve.engine.units import Effect, effects, units_of, without_selection
from silva.serve.engine.warm import open_all
from silva.serve.engine.width import Clocks
from silva.serve.requests import checked, identity_of, source_of
from silva.serve.tenant import NOBODY, Tenant, acting_for

__all__ = ["Engine", "Late", "Outcome"]

_MOST_ABANDONED = 64
"""Calls that nobody awaits and that have not returned, of all steps together. Each keeps a thread;
beyond that, they keep their slots too, and the step is as slow as they are."""

_AS_WRITTEN = "filter_before_explode"
"""The rule that is not used: a filter that fails before an explode may not be asked after it, when
there are no parts. Offline such a row is done again as written; here the filter stays."""

Found = Sequence[Effect] | Exception
"""What a unit makes of each request of a batch, or what it raised."""


class Engine:
    """A plan that answers requests."""

    def __init__(
        self,
        plan: Node,
        *,
        slo: float | None = None,
        seed: int | None = None,
        on_error: Any = "raise",
        most_rows: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`slo`: seconds within which a request should be answered; batches are as large as that
        allows. `seed`: of all random steps, by default that of the plan. `on_error`: a
        `Substitute` takes the place of what fails. `most_rows`: the largest batch."""
        verify(plan)
        self.names = source_of(plan).names
        self.columns = columns(plan)
        self._most_rows = most_rows
        self._clock = clock
        written = Options(plan, (("disable", (*option(plan, "disable", ()), _AS_WRITTEN)),))
        with Loader(written, LoaderOptions(backend="inline", on_error=on_error)) as loader:
            units = without_selection(units_of(loader.facts().plan))
        chosen = int(option(plan, "seed", 0)) if seed is None else seed
        self._substitutes = isinstance(on_error, Substitute)
        self.context = Context(chosen, 0, "skip")
        if isinstance(on_error, Substitute):
            self.context = Context(chosen, 0, "substitute", on_error.value)
        self._worker = Worker(shares_generators=False, answers=True)
        self._handing_over = Curve()
        self._awaits = [len(unit.after) for unit in units]
        self._next: list[list[int]] = [[] for _ in units]
        for unit in units:
            for before in unit.after:
                self._next[before].append(unit.number)
        self._first = [unit.number for unit in units if not unit.after]
        self.stations = [station(unit) for unit in units]
        self._schedule = Schedule(slo, clock, self._next, self.stations)
        self._count = len(units)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: list[Any] | None = None
        close_at_exit(self)

    async def warm(self) -> None:
        """Opens all models and indices beside the requests that come."""
        await asyncio.to_thread(self.open)

    def open(self) -> None:
        """Opens all models and indices, which may take long. They stay open with the engine, and an
        index stays at its version."""
        here = [one.unit for one in self.stations if one.elsewhere is None]
        try:
            self._held = open_all(call for unit in here for call in unit.asks)
        except KeyboardInterrupt as error:
            raise interrupted("open", error) from error

    def move(self, places: Mapping[int, Elsewhere]) -> None:
        """Lets the steps with these numbers run elsewhere, from before the first request on."""
        for number, place in places.items():
            self.stations[number].elsewhere = place
            self.stations[number].prefixes = None
            self.stations[number].quick.in_place = False

    @property
    def is_warm(self) -> bool:
        """Whether all models and indices are open."""
        return self._held is not None

    async def answer(
        self, row: Mapping[str, Any], *, deadline: float, tenant: Tenant = NOBODY
    ) -> Outcome:
        """Answers one request within so many seconds. A `PlanError` says what is wrong with it. To
        give it up, cancel the task that awaits it. Nothing is shared between tenants, and models
        are asked in their names."""
        given = checked(self.names, row)
        loop = self._loop = asyncio.get_running_loop()
        now = self._clock()
        flight = Flight(
            identity_of(self.names, given),
            [given],
            done=loop.create_future(),
            began=now,
            deadline=now + deadline,
            left=self._awaits.copy(),
            stop=self._count,
            tenant=tenant,
        )
        timer = loop.call_later(deadline, self._expire, flight)
        try:
            if not self._count:
                self._end(flight, 0)
            for number in self._first:
                self._enter(number, flight)
            return await flight.done
        finally:
            timer.cancel()
            flight.done.cancel()
            for number in list(flight.running):
                self._leave(self.stations[number], flight)

    def runs_on(self, thread: threading.Thread) -> bool:
        """Whether it is one of the threads that run costly steps."""
        return any(thread in one.threads for one in self.stations)

    def close(self) -> None:
        join_all([thread for one in self.stations for thread in one.threads.stop()])

    def _expire(self, flight: Flight) -> None:
        if not flight.over:
            self._late(flight, min(flight.running, default=0))

    def _late(self, flight: Flight, number: int) -> None:
        waits_for = self.stations[number].unit.label if self.stations else ""
        flight.done.set_exception(Late(waits_for or "the end"))

    # The way of a request.

    def _enter(self, number: int, flight: Flight) -> None:
        """Puts a request into the queue of a unit, or behind another one that asks the same."""
        station = self.stations[number]
        flight.running.add(number)
        if station.shares and self._follows(station, flight):
            return
        station.enter(flight)
        self._call(station)

    def _follows(self, station: Station, flight: Flight) -> bool:
        assert station.same is not None
        began = time.perf_counter()
        leader = station.same.enter(flight)
        station.keying.add(1, time.perf_counter() - began)
        if leader is None:
            return False
        if leader in station.running:
            station.running[leader].limit.extend(self._until(flight))
        return True

    def _until(self, flight: Flight) -> float:
        """When a request must have ended, on the clock of limits."""
        return time.monotonic() + flight.deadline - self._clock()

    def _leave(self, station: Station, flight: Flight) -> None:
        """Takes a request that is over out of a unit, and the work that was for it alone."""
        flight.running.discard(station.unit.number)
        asked = flight if station.same is None else station.same.leave(flight)
        if station.is_awaited(asked):
            return
        if asked in station.waiting:
            del station.waiting[asked]
            station.settle(asked)
        elif asked in station.running:
            batch = station.running[asked]
            if not any(map(station.is_awaited, batch.flights)):
                self._give_up(station, batch)

    def _give_up(self, station: Station, batch: Batch) -> None:
        """Nobody awaits a batch that runs: its slot goes to those who wait."""
        batch.limit.give_up()
        if batch.thread is not None:
            GATE.forget(batch.thread)
        for flight in batch.flights:
            station.settle(flight)
        if not batch.is_abandoned and sum(s.abandoned for s in self.stations) < _MOST_ABANDONED:
            batch.is_abandoned = True
            station.abandoned += 1
            station.busy -= 1
            self._call(station)

    def _end(self, flight: Flight, number: int) -> None:
        """Ends a request of which all units have run that must."""
        error = flight.errors.get(flight.stop - 1)
        if self._clock() >= flight.deadline:
            self._late(flight, number)
        elif error is not None:
            flight.done.set_exception(error)
        else:
            flight.done.set_result(flight.outcome(self.columns, substitutes=self._substitutes))

    # Batches.

    def _call(self, station: Station) -> None:
        """Lets a unit take what waits for it, after all that arrives in this turn of the loop."""
        if not station.due:
            assert self._loop is not None
            station.due = True
            self._loop.call_soon(self._turn, station)

    def _turn(self, station: Station) -> None:
        """Runs what waits for a unit, or hands it to threads."""
        station.due = False
        assert self._loop is not None
        while station.busy < station.slots:
            flights = self._flights(station)
            if not flights:
                return
            if station.quick.in_place and not (station.unit.functions and GATE.is_closed):
                began = time.perf_counter()
                found = self._run(station, flights, self._worker)
                spent = time.perf_counter() - began
                station.learn(len(flights), spent, self._handing_over.seconds(1))
                self._give_back(station, flights, found)
                continue
            awaiting = [one for flight in flights for one in station.who_awaits(flight)]
            batch = Batch(flights, Limit(max(map(self._until, awaiting))))
            try:
                station.threads.submit(self._job(station, batch, self._loop))
            except StepError as error:
                self._give_back(station, flights, error)
                continue
            station.running.update(dict.fromkeys(flights, batch))
            station.busy += 1

    def _flights(self, station: Station) -> list[Flight]:
        """The requests of the next batch."""
        count = len(station.waiting)
        if not station.quick.in_place and count > 1:
            count = self._schedule.rows(station, -(-count // (station.slots - station.busy)))
        if self._most_rows is not None:
            count = min(count, self._most_rows)
        if station.prefixes is None or len(station.waiting) < 2:
            return station.take(count)
        count = min(count, station.prefixes.together)
        return station.take(count, self._schedule.free(station, count))

    def _run(self, station: Station, flights: list[Flight], worker: Worker) -> Found:
        """What a unit makes of a batch."""
        try:
            with acting_for(flights[0].tenant if station.unit.asks else NOBODY):
                if station.elsewhere is not None:
                    return station.elsewhere.effects(flights)
                return effects(station.unit, flights, self.context, worker)
        except Exception as error:  # noqa: BLE001  it is the step's: all of its requests fail
            return error
        except KeyboardInterrupt as error:
            return interrupted(station.unit.label, error)

    def _job(
        self, station: Station, batch: Batch, loop: asyncio.AbstractEventLoop
    ) -> Callable[[Worker], None]:
        handed = time.perf_counter()

        def work(worker: Worker) -> None:
            begin = Clocks.now()
            batch.thread = threading.get_ident()
            found: Found = Interrupted(f"`{station.unit.label}` was interrupted")
            try:
                if not batch.limit.is_given_up:
                    with batch.limit.applies():
                        found = self._run(station, batch.flights, worker)
            finally:
                spent = Clocks.now().since(begin)
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                    loop.call_soon_threadsafe(back, found, spent)

        def back(found: Found, spent: Clocks) -> None:
            station.threads.finished()
            if batch.is_abandoned:
                station.abandoned -= 1
            else:
                station.busy -= 1
            for flight in batch.flights:
                del station.running[flight]
            station.width.add(spent)
            self._handing_over.add(1, time.perf_counter() - handed - spent.wall)
            station.learn(len(batch.flights), spent.wall, self._handing_over.seconds(1))
            effects_found = () if isinstance(found, Exception) else found
            if any(not isinstance(e, Exception) and e.goes_on for e in effects_found):
                self._give_back(station, batch.flights, found)  # turns share the next batch
                self._turn(station)
                return
            # the thread begins with the next batch while the replies of this one are written
            self._turn(station)
            loop.call_soon(self._give_back, station, batch.flights, found)

        return work

    def _give_back(self, station: Station, flights: list[Flight], found: Found) -> None:
        """Lets requests, and those that follow them, go on from a unit with what it has made."""
        for i, flight in enumerate(flights):
            effect = found if isinstance(found, Exception) else found[i]
            for follower in station.settle(flight):
                own = effect if isinstance(effect, Exception) else copied(effect, follower)
                if own is None:
                    station.is_own = True
                    self._enter(station.unit.number, follower)
                else:
                    station.shared += 1
                    self._passed(station, follower, own)
            self._passed(station, flight, effect)

    def _passed(self, station: Station, flight: Flight, effect: Effect | Exception) -> None:
        """Lets a request go on from a unit."""
        number = station.unit.number
        flight.running.discard(number)
        if flight.over:
            return
        if isinstance(effect, Exception):
            flight.errors[number] = effect
            flight.passed(number, last=True)
        else:
            was_lost = flight.lost  # by a later unit that ran beside this one
            flight.apply(station.unit, effect)
            if effect.goes_on:
                self._enter(number, flight)
                return
            lost = flight.lost and not was_lost
            failed = lost or (effect.failures and not self._substitutes)
            flight.passed(number, last=bool(failed) or not flight.rows)
        if flight.is_through:
            self._end(flight, number)
            return
        for after in self._next[number]:
            flight.left[after] -= 1
            if not flight.left[after] and after < flight.stop:
                self._enter(after, flight)
