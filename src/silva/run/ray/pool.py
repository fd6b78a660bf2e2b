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

import contextlib
import functools
import os
import queue
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from silva.errors import SilvaError, StepError, WorkerError
from silva.lifetime import Thread, close_at_exit, join_all
from silva.physical.stage.call import Worker
from silva.physical.stage.raised import in_words
from silva.physical.stage.stage import Runs
from silva.run.pools.channel import Message, seal
from silva.run.pools.pickling import pickle_stage
from silva.run.pools.processes import ATTEMPTS, finish, may_repeat
from silva.run.pools.task import Pool, Task, TaskQueue
from silva.run.pools.threads import PAUSE, check_owner, wait_for
from silva.run.ray.actor import Actor
from silva.run.ray.buffers import Leases, Parcel, near
from silva.run.ray.cluster import Cluster
from silva.run.ray.roster import Roster, Seat, first_line, is_idle, lost_on, stacks_of

_FAREWELL = 15.0
"""Seconds that closing waits for the thread, which may have to shut Ray down."""
_DRAIN_SECONDS = 1.0
"""Seconds between two questions to actors which nodes are being drained."""


class RayPool(Pool):
    def __init__(self, cluster: Cluster, width: int) -> None:
        self.width = width
        self.leases = Leases(most=0)
        """Bytes of the object store that arrays of this process lie in, with a limit."""
        self._cluster = cluster
        self._used = width
        self._owner = os.getpid()
        self._queue = TaskQueue()
        """Its lock is not held during calls of Ray."""
        self._roster = Roster(width)
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = False
        self._raced = False
        self._false_starts = 0
        """Consecutive actors that were lost before they were ready."""
        self._looked_at = 0.0
        self._asked_at = 0.0
        """When an actor was last asked which nodes are being drained."""
        self._turns = 0
        """Takes turns among the actors that are asked."""
        self._incomplete = True
        """Whether an actor may be missing."""
        self._start_at = 0.0
        """When the next actor may be started; there is a pause after a failed start."""
        self._stages: dict[int, tuple[Runs, bytes, Any]] = {}
        self._thread = Thread(self._run, "ray")

    def start(self) -> None:
        self._thread.start()
        close_at_exit(self)  # before Ray's own: it ends who calls it after that

    # What the consumer asks for.

    @property
    def ready(self) -> bool:
        """At least one actor has started."""
        return self._roster.there > 0

    @property
    def complete(self) -> bool:
        """Whether all required actors have started."""
        return self._roster.there >= min(self._used, self.width)

    def actors(self) -> list[tuple[str, int]]:
        """The node and the process id of each actor that has started."""
        return [(seat.node, seat.process) for seat in self._roster.ready()]

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        stage = task.stage
        if id(stage) not in self._stages:  # fails here, where it can be read
            self._stages[id(stage)] = (stage, pickle_stage(stage), None)
        self._queue.submit(task)
        self._events.put(None)

    def help(self, task: Task, worker: Worker) -> None:
        """Runs a task on this thread while the actors start, unless one of them has it."""
        if not self.ready:
            self._queue.run_here(task, worker)

    def race(self, task: Task) -> None:
        """Gives a slow task to a second actor; the first result counts."""
        if may_repeat(task.stage):
            self._events.put(lambda: self._race(task))

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        wait_for(task, self._owner, on_idle)

    def use(self, count: int) -> None:
        if count != self._used:
            self._used = count
            self._events.put(self._apply_use)

    def stacks(self) -> str:
        """The stacks of each actor, as far as it answers."""
        return stacks_of(self._cluster, self._roster.seats)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child has no part in its parent's actors
        self._closing = True
        with self._queue.changed:
            self._queue.tasks.clear()
        self._events.put(None)
        join_all([self._thread], _FAREWELL)

    # The thread.

    def _run(self) -> None:
        try:
            self._cluster.join(lambda: self._closing)
            if not self._closing:
                self.leases = Leases(self._cluster.lease_bytes())
            while not self._closing:
                if not self._cluster.connected:
                    raise WorkerError(
                        "the connection to Ray was ended while a loader used it: close the loader "
                        "first"
                    )
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
        """Starts the actors that are missing."""
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
        """The actor class for Ray. Ray does not retry anything: the pool does."""
        repeats = {"max_restarts": 0, "max_task_retries": 0}
        return ray.remote(num_cpus=1, concurrency_groups={"looks": 1}, **repeats)(Actor)

    def _when(self, ref: Any, seat: Seat, then: Callable[..., None], *more: Any) -> None:
        """Calls `then` on the pool's thread once Ray has the result or an error."""
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
        seat.memory = near(proof) if seat.node == self._cluster.node else None
        self._false_starts = 0
        before = self._roster.welcome(seat)
        if before is not None and not before.tasks:
            self._remove(before)

    def _give_out(self) -> None:
        """Sends waiting tasks to actors that have room for one."""
        free = self._roster.free
        while free:
            seat = free[0]
            if seat.retired or not seat.alive:
                free.popleft()
                continue
            with self._queue.changed:
                task = self._queue.next()
                if task is None:
                    return
                free.popleft()
                if seat.number >= self._used and not task.runs:
                    self._queue.tasks.appendleft(task)
                    seat.parked += 1
                    continue
                task.runs += 1
                seat.tasks.append(task)
                if len(seat.tasks) == 1:
                    task.started = time.monotonic()
            self._send(seat, task)

    def _race(self, task: Task) -> None:
        """Sends a task to the least busy of the other actors, in use or not."""
        with self._queue.changed:
            others = [seat for seat in self._roster.ready() if task not in seat.tasks]
            if task.runs != 1 or task.finished.is_set() or not others:
                return
            seat = min(others, key=lambda other: len(other.tasks))
            task.runs += 1
            seat.tasks.append(task)
        seat.more += 1
        self._raced = True
        self._send(seat, task)

    def _send(self, seat: Seat, task: Task) -> None:
        number = id(task.stage)
        try:
            message = seal((task.payload, task.context))
        except BaseException as error:  # noqa: BLE001  whatever a class of the user's does
            self._put_back(seat, task)
            task.finish(None, StepError(f"rows cannot be sent to an actor: {in_words(error)}"))
            return
        if number not in seat.known:
            seat.handle.learn.remote(number, self._stage(number))
            seat.known.add(number)
        freed = None if seat.memory is None else seat.memory.freed()
        self._when(seat.handle.run.remote(number, message, freed), seat, self._came, task)

    def _stage(self, number: int) -> Any:
        """A stage in the object store; it is put there once."""
        stage, pickled, ref = self._stages[number]
        if ref is None:
            ref = ray.put(pickled)
            self._stages[number] = (stage, pickled, ref)
        return ref

    def _put_back(self, seat: Seat, task: Task) -> None:
        """Notes that the actor has room for another task."""
        with self._queue.changed:
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
        """Takes a result, which may lie in shared memory of the actor."""
        if isinstance(result, Parcel):
            assert seat.memory is not None
            try:
                result = seat.memory.unpack(result)
            except OSError as error:  # the actor is gone, or this process has no descriptor left
                self._again(task, error)
                return
        finish(task, Message(result.body, self.leases.take(result.buffers)))

    # What goes wrong.

    def _again(self, task: Task, error: BaseException) -> None:
        """Runs a task again whose result was lost, a limited number of times."""
        task.attempts += 1
        if task.attempts >= ATTEMPTS:
            task.finish(None, lost_on(task, error))
        else:
            self._queue.give_back([task])

    def _lost(self, seat: Seat, error: BaseException) -> None:
        """An actor is gone: its tasks are given out again, and the one it ran counts an attempt."""
        if not seat.alive:
            return
        mine = self._remove(seat)
        if not seat.ready:
            self._after_false_start(error)
        if mine and not getattr(error, "preempted", False):  # it is not to blame for its node
            self._again(mine.pop(0), error)
        self._queue.give_back(mine)

    def _remove(self, seat: Seat) -> list[Task]:
        """Ends an actor and returns its tasks."""
        self._kill(seat)
        self._roster.leave(seat)
        self._incomplete = True
        with self._queue.changed:
            mine = list(seat.tasks)
            seat.tasks.clear()
            for task in mine:
                task.runs -= 1
        return mine

    def _after_false_start(self, error: BaseException) -> None:
        """Gives up if no actor can be started; tries again after a pause if others run."""
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
        """No actor can be started: all tasks fail, now and later."""
        if not isinstance(error, SilvaError):
            wrapped = WorkerError(f"the Ray cluster cannot be used ({first_line(error)})")
            wrapped.__cause__ = error
            error = wrapped
        given = [task for seat in self._roster.everybody() for task in seat.tasks]
        self._queue.give_up(error, given)

    # Now and then.

    def _look(self) -> None:
        """Checks from time to time for actors that block others or are no longer needed."""
        now = time.monotonic()
        if now - self._looked_at < PAUSE:
            return
        self._looked_at = now
        if now - self._asked_at > _DRAIN_SECONDS:
            self._asked_at = now
            self._ask_who_leaves()
        for seat in self._roster.everybody():
            if self._raced and seat.tasks and seat.tasks[0].finished.is_set():
                self._queue.give_back(self._remove(seat))  # outrun, and may be at it for ever
            elif is_idle(seat, self._used, now):
                self._remove(seat)

    # Nodes that are drained.

    def _ask_who_leaves(self) -> None:
        """Asks which nodes are being drained: each time another actor, in case one does not
        answer."""
        ready = self._roster.ready()
        if ready:
            self._turns += 1
            seat = ready[self._turns % len(ready)]
            self._when(seat.handle.draining.remote(), seat, self._heard)

    def _heard(self, _: Seat, future: Future[Any]) -> None:
        """Starts replacements for actors on nodes that are being drained, where Ray starts none."""
        if future.exception() is not None:
            return  # the next one is asked
        nodes = future.result()
        for seat in self._roster.ready() if nodes else ():
            if seat.node in nodes and seat.heir is None:
                seat.heir = self._new(seat.number)

    def _apply_use(self) -> None:
        """Applies a new number of actors to use."""
        self._incomplete = True
        self._roster.unpark(self._used)
