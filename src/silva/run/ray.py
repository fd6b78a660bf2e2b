"""Ray actors: one thread of the driver gives out tasks and takes results.

Everything that happens is put into one queue: a task that was submitted, an actor that is ready, a
result that Ray says has arrived. The thread takes one after the other, so that what an event costs
does not depend on how many actors there are. An actor holds two tasks, so that the next is there
when one is done. When an actor is lost, with its node or without, its tasks are given out again; a
task on which three actors were lost is an error that names its rows. An actor on a node that is
being drained works on until another has started elsewhere. A result lies in the object store, or on
the driver's own node in memory that the actor shares with it; there it is read and not copied,
until batches that somebody keeps fill too much.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from silva.errors import SilvaError, WorkerError
from silva.physical.call import Worker
from silva.physical.stage import Runs
from silva.run.actor import Actor
from silva.run.channel import Message, seal
from silva.run.cluster import Cluster
from silva.run.leases import Leases
from silva.run.parcels import Parcel, near
from silva.run.pickling import pickle_stage
from silva.run.processes import ATTEMPTS, may_repeat, rebuilt
from silva.run.ray_told import lost_on, stacks_of, told
from silva.run.roster import Roster, is_idle
from silva.run.seat import Seat
from silva.run.task import Task, execute
from silva.run.threads import PAUSE, check_owner, join_all, wait_for

_FAREWELL = 15.0
"""Seconds that closing waits for the thread, which may have a Ray to end."""
_DRAIN_SECONDS = 1.0
"""How often some actor is asked which nodes are about to end."""


class RayPool:
    def __init__(self, cluster: Cluster, width: int) -> None:
        self.width = width
        self.leases = Leases(most=0)
        """What arrays of ours lie in, of the object store and of memory that actors share."""
        self._node: str | None = None
        """That this process is on."""
        self._cluster = cluster
        self._used = width
        self._owner = os.getpid()
        self._lock = threading.Lock()
        """For the tasks that wait, and who has which. Never held while Ray is called."""
        self._tasks: deque[Task] = deque()
        self._roster = Roster(width)
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = False
        self._broken: Exception | None = None
        self._raced = False
        self._false_starts = 0
        """Actors that were lost before they were ready, since anything went well."""
        self._looked_at = 0.0
        self._asked_at = 0.0
        """When an actor was last asked which nodes are about to end."""
        self._turns = 0
        """Of actors that are asked."""
        self._incomplete = True
        """Some actor may be missing."""
        self._start_at = 0.0
        """When the next actor may be started: not in haste where they fail."""
        self._stages: dict[int, tuple[Runs, bytes, Any]] = {}
        self._thread = threading.Thread(target=self._run, name="silva-ray", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # before Ray's own: it ends who calls it after that

    # What the consumer asks for.

    @property
    def ready(self) -> bool:
        """At least one actor has started."""
        return self._roster.there > 0

    @property
    def complete(self) -> bool:
        """No actor that is needed is still on its way."""
        return self._roster.there >= min(self._used, self.width)

    def actors(self) -> list[tuple[str, int]]:
        """The node and the process of each actor that is there."""
        return [(seat.node, seat.process) for seat in self._roster.ready()]

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        stage = task.stage
        if id(stage) not in self._stages:  # fails here, where it can be read
            self._stages[id(stage)] = (stage, pickle_stage(stage), None)
        with self._lock:
            if self._broken is not None:
                raise self._broken
            self._tasks.append(task)
        self._events.put(None)

    def help(self, task: Task, worker: Worker) -> None:
        """While the actors start, a task that none of them has is done here."""
        if self.ready:
            return
        with self._lock:
            if task not in self._tasks:
                return
            self._tasks.remove(task)
        task.finish(execute(task.stage, task.payload, task.context, worker))

    def race(self, task: Task) -> None:
        """Gives a task that is slow to a second actor; the first result counts."""
        if may_repeat(task.stage):
            self._events.put(lambda: self._race(task))

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        wait_for(task, self._owner, on_idle)

    def use(self, count: int) -> None:
        if count != self._used:
            self._used = count
            self._events.put(self._unpark)

    def stacks(self) -> str:
        """What each actor is doing, as it says itself, or that it is not there yet."""
        return stacks_of(self._cluster, self._roster.seats)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child has no part in its parent's actors
        atexit.unregister(self.close)
        self._closing = True
        with self._lock:
            self._tasks.clear()
        self._events.put(None)
        join_all([self._thread], _FAREWELL)

    # The thread.

    def _run(self) -> None:
        try:
            self._cluster.join(lambda: self._closing)
            if not self._closing:
                self.leases = Leases(self._cluster.lease_bytes())
                self._node = self._cluster.node
            while not self._closing:
                self._check_connected()
                self._start_actors()
                self._give_out()
                with contextlib.suppress(queue.Empty):
                    event = self._events.get(timeout=PAUSE)
                    if event is not None:
                        event()
                self._look()
        except Exception as error:  # noqa: BLE001  it must not die in silence
            self._give_up(error)
        finally:
            for seat in self._roster.everybody():
                self._kill(seat)
                if seat.heir is not None:
                    self._kill(seat.heir)
            self._roster = Roster(self.width)
            self._stages.clear()
            with contextlib.suppress(queue.Empty):  # what came since knows this pool, and a result
                while True:
                    self._events.get_nowait()

    def _start_actors(self) -> None:
        """Starts those that are wanted and not there; looks only where some may be."""
        if not self._incomplete or time.monotonic() < self._start_at:
            return
        self._incomplete = False
        for number in self._roster.vacant(min(self._used, self.width)):
            self._roster.seats[number] = self._new(number)

    def _new(self, number: int) -> Seat:
        seat = Seat(number, self._actor.remote(sys.path))
        self._when(seat.handle.where.remote(), seat, self._started)
        return seat

    @functools.cached_property
    def _actor(self) -> Any:
        """The class as Ray knows it. Ray itself is not to repeat anything: the pool does."""
        repeats = {"max_restarts": 0, "max_task_retries": 0}
        return ray.remote(num_cpus=1, concurrency_groups={"looks": 1}, **repeats)(Actor)

    def _when(self, ref: Any, seat: Seat, then: Callable[..., None], *more: Any) -> None:
        """Has something done on this thread once Ray has a result, or knows that there is none."""
        events = self._events

        def arrived(future: Future[Any]) -> None:  # on a thread of Ray's: no more than this
            events.put(lambda: then(seat, future, *more))

        ref.future().add_done_callback(arrived)

    def _started(self, seat: Seat, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self._lost(seat, error)
            return
        seat.node, seat.process, proof = future.result()
        seat.memory = near(proof) if seat.node == self._node else None
        self._false_starts = 0
        before = self._roster.welcome(seat)
        if before is not None and not before.tasks:
            self._remove(before)

    def _give_out(self) -> None:
        """Gives tasks to actors that have room for one."""
        free = self._roster.free
        while free:
            seat = free[0]
            if seat.retired or not seat.alive:
                free.popleft()
                continue
            with self._lock:
                task = self._next()
                if task is None:
                    return
                free.popleft()
                if seat.number >= self._used and not task.runs:
                    self._tasks.appendleft(task)
                    seat.parked += 1
                    continue
                task.runs += 1
                seat.tasks.append(task)
                if len(seat.tasks) == 1:
                    task.started = time.monotonic()
            self._send(seat, task)

    def _race(self, task: Task) -> None:
        """To the actor with the least to do, needed or not, but for the one that has it."""
        with self._lock:
            others = [seat for seat in self._roster.ready() if task not in seat.tasks]
            if task.runs != 1 or task.finished.is_set() or not others:
                return
            seat = min(others, key=lambda other: len(other.tasks))
            task.runs += 1
            seat.tasks.append(task)
        seat.more += 1
        self._raced = True
        self._send(seat, task)

    def _next(self) -> Task | None:
        while self._tasks:
            task = self._tasks.popleft()
            if not (task.cancelled or task.finished.is_set()):
                return task
        return None

    def _send(self, seat: Seat, task: Task) -> None:
        number = id(task.stage)
        try:
            message = seal((task.payload, task.context))
        except Exception as error:  # noqa: BLE001  whatever a class of the user's does
            self._put_back(seat, task)
            task.finish(None, SilvaError(f"rows cannot be sent to an actor: {error}"))
            return
        if number not in seat.known:
            seat.handle.learn.remote(number, self._stage(number))
            seat.known.add(number)
        freed = None if seat.memory is None else seat.memory.freed()
        self._when(seat.handle.run.remote(number, message, freed), seat, self._came, task)

    def _stage(self, number: int) -> Any:
        """A stage in the object store, where it is put once."""
        stage, pickled, ref = self._stages[number]
        if ref is None:
            ref = ray.put(pickled)
            self._stages[number] = (stage, pickled, ref)
        return ref

    def _put_back(self, seat: Seat, task: Task) -> None:
        """The actor has room for another task."""
        with self._lock:
            seat.tasks.remove(task)
            task.runs -= 1
            if seat.tasks:
                seat.tasks[0].started = time.monotonic()
        if seat.retired and not seat.tasks:
            self._remove(seat)
        else:
            self._roster.has_room(seat)

    def _came(self, seat: Seat, future: Future[Any], task: Task) -> None:
        if not seat.alive:
            return  # its tasks were given out again
        error = future.exception()
        if isinstance(error, RayActorError):
            self._lost(seat, error)
            return
        self._put_back(seat, task)
        if isinstance(error, RayTaskError):  # not from a step: those errors come as results
            task.finish(None, WorkerError(f"`{task.stage.label}` failed in its actor: {error}"))
        elif error is not None:
            self._again(task, error)
        else:
            self._false_starts = 0
            self._take(seat, task, future.result())

    def _take(self, seat: Seat, task: Task, result: Message | Parcel) -> None:
        """A result, which may lie in memory of the actor's."""
        if isinstance(result, Message):
            self._finish(task, result)
            return
        assert seat.memory is not None
        try:
            message = seat.memory.unpack(result)
        except OSError as error:  # the actor is gone, or this process has no descriptor left
            self._again(task, error)
        else:
            self._finish(task, message)

    def _finish(self, task: Task, message: Message) -> None:
        try:
            results, error = Message(message.body, self.leases.take(message.buffers)).load()
        except Exception as failed:  # noqa: BLE001  whatever a class of the user's does when it is rebuilt
            text = f"a result of `{task.stage.label}` cannot be read by the loader: {failed!r}"
            task.finish(None, SilvaError(text))
            return
        task.finish(results, None if error is None else rebuilt(task, error))

    # What goes wrong.

    def _again(self, task: Task, error: BaseException) -> None:
        """A task's result was lost: it is done once more, but not for ever."""
        task.attempts += 1
        if task.attempts >= ATTEMPTS:
            task.finish(None, lost_on(task, error))
        else:
            self._give_back([task])

    def _give_back(self, tasks: list[Task]) -> None:
        with self._lock:
            back = [t for t in tasks if not t.finished.is_set() and not t.runs]
            self._tasks.extendleft(t for t in reversed(back) if t not in self._tasks)

    def _lost(self, seat: Seat, error: BaseException) -> None:
        """An actor is gone: its tasks go back, and the one that it was doing is blamed."""
        if not seat.alive:
            return
        mine = self._remove(seat)
        if not seat.ready:
            self._after_false_start(error)
        if mine and not getattr(error, "preempted", False):  # it is not to blame for its node
            self._again(mine.pop(0), error)
        self._give_back(mine)

    def _remove(self, seat: Seat) -> list[Task]:
        """Ends an actor; the tasks that it had."""
        self._kill(seat)
        self._roster.leave(seat)
        self._incomplete = True
        with self._lock:
            mine = list(seat.tasks)
            seat.tasks.clear()
            for task in mine:
                task.runs -= 1
        return mine

    def _after_false_start(self, error: BaseException) -> None:
        """Gives up where no actor can be had; where others work, tries again, but not in haste."""
        self._false_starts += 1
        if self._false_starts >= ATTEMPTS * self.width and not self.ready:
            raise WorkerError(f"no actor could be started on the cluster: {error}") from error
        if self._false_starts >= ATTEMPTS:
            self._start_at = time.monotonic() + PAUSE

    def _kill(self, seat: Seat) -> None:
        seat.alive = False
        if seat.memory is not None:
            seat.memory.close()
        if self._cluster.connected:  # any call to a Ray that is gone would begin another
            with contextlib.suppress(Exception):  # gone before
                ray.kill(seat.handle)

    def _give_up(self, error: Exception) -> None:
        """Nobody can be had to do tasks: everything that waits fails, now and later."""
        if not isinstance(error, SilvaError):
            wrapped = WorkerError(f"the Ray cluster cannot be used ({told(error)})")
            wrapped.__cause__ = error
            error = wrapped
        with self._lock:
            self._broken = error
            given = [task for seat in self._roster.everybody() for task in seat.tasks]
            tasks = [*given, *self._tasks]
            self._tasks.clear()
        for task in tasks:
            task.finish(None, error)

    # Now and then.

    def _look(self) -> None:
        """Now and then: is anybody in the way, or not needed?"""
        now = time.monotonic()
        if now - self._looked_at < PAUSE:
            return
        self._looked_at = now
        if now - self._asked_at > _DRAIN_SECONDS:
            self._asked_at = now
            self._ask_who_leaves()
        for seat in self._roster.everybody():
            if self._raced and seat.tasks and seat.tasks[0].finished.is_set():
                self._give_back(self._remove(seat))  # outrun, and may be at it for ever
            elif is_idle(seat, self._used, now):
                self._remove(seat)

    # Nodes that are drained.

    def _ask_who_leaves(self) -> None:
        """Asks one actor after another: one that does not answer holds up nobody."""
        ready = self._roster.ready()
        if ready:
            self._turns += 1
            seat = ready[self._turns % len(ready)]
            self._when(seat.handle.draining.remote(), seat, self._heard)

    def _heard(self, _: Seat, future: Future[Any]) -> None:
        """Has others started for those whose nodes are about to end; Ray starts none there."""
        if future.exception() is not None:
            return  # the next one is asked
        nodes = future.result()
        for seat in self._roster.ready() if nodes else ():
            if seat.node in nodes and seat.heir is None:
                seat.heir = self._new(seat.number)

    def _check_connected(self) -> None:
        if not self._cluster.connected:
            raise WorkerError(
                "the connection to Ray was ended while a loader used it: close the loader first"
            )

    def _unpark(self) -> None:
        """Another number of actors is needed."""
        self._incomplete = True
        self._roster.unpark(self._used)
