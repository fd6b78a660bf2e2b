"""Worker processes: one thread of the parent looks after each.

The thread keeps two tasks at its worker, so that the next one is there when one is done, receives
results, and replaces a worker that dies, whose tasks are given out again. A task on which three
workers died is an error that names its rows. A worker that is stopped, or that still runs a task
which another has finished, is killed and replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import psutil

from silva.errors import SilvaError, StepError, WorkerError
from silva.lifetime import Thread, join_all
from silva.physical.stage.call import Worker
from silva.physical.stage.raised import in_words, unpickled
from silva.physical.stage.stage import Runs
from silva.run.pools.channel import Channel, Message
from silva.run.pools.pickling import pickle_stage
from silva.run.pools.task import Pool, Task, TaskQueue, functions_of
from silva.run.pools.threads import PAUSE, check_owner

ATTEMPTS = 3
_AHEAD = 2
"""Tasks that a worker has: the one it runs and the next."""
_FAREWELL = 5.0
"""Seconds that a killed process may take to end."""
_ENTRY = str(Path(__file__).with_name("worker.py"))
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
        "OPENCV_FOR_THREADS_NUM", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS",
    ),
    "1",
)  # fmt: skip


class ProcessPool(Pool):
    given = _AHEAD

    def __init__(self, width: int) -> None:
        self.width = width
        self.used = width
        self._owner = os.getpid()
        self.queue = TaskQueue()
        self.closing = False
        self._raced = False
        """Whether any task was ever given to a second worker."""
        self.false_starts = 0
        """Consecutive workers that ended before they were ready."""
        self._stages: dict[int, tuple[Runs, bytes]] = {}
        self._keepers = [_Keeper(self, i) for i in range(width)]

    def start(self) -> None:
        for keeper in self._keepers:
            keeper.thread.start()

    @property
    def ready(self) -> bool:
        """At least one worker has started."""
        return any(keeper.ready for keeper in self._keepers)

    @property
    def complete(self) -> bool:
        """Whether all required workers have started."""
        return all(keeper.ready for keeper in self._keepers[: self.used])

    def processes(self) -> list[int]:
        """The process ids of the workers."""
        found = [k.process for k in self._keepers]
        return [p.pid for p in found if p is not None and p.poll() is None]

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        self.pickled(task.stage)  # fails here, on the consumer's thread, where it can be read
        self.queue.submit(task, everybody=self.used < self.width)

    def pickled(self, stage: Runs) -> tuple[int, bytes]:
        number = id(stage)
        if number not in self._stages:
            self._stages[number] = (stage, pickle_stage(stage))
        return number, self._stages[number][1]

    def help(self, task: Task, worker: Worker) -> None:
        """Runs a task on this thread while the workers start, unless one of them has it."""
        if not self.ready:
            self.queue.run_here(task, worker)

    def race(self, task: Task) -> None:
        """Gives a slow task to a second worker; the first result counts."""
        queue = self.queue
        with queue.changed:
            waits = task in queue.tasks or task.finished.is_set()
            if task.runs == 1 and not waits and may_repeat(task.stage):
                queue.tasks.appendleft(task)
                self._raced = True
                queue.changed.notify_all()

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        began = time.monotonic()
        if self._raced:  # there may be a loser, who would be at it for ever
            for keeper in self._keepers:
                keeper.end_if_outrun()
        while not task.finished.wait(PAUSE):
            check_owner(self._owner)
            for keeper in self._keepers:
                keeper.end_if_useless()
            on_idle(time.monotonic() - began)

    def use(self, count: int) -> None:
        if count != self.used:
            with self.queue.changed:
                self.used = count
                self.queue.changed.notify_all()

    def free_bytes(self) -> int:
        if os.getpid() != self._owner:
            return 0
        return sum(keeper.free_bytes() for keeper in self._keepers)

    def release_free(self, most: float) -> None:
        if os.getpid() != self._owner:
            return  # a forked child maps its parent's memory
        for keeper in self._keepers:
            kept = keeper.free_bytes()
            if (excess := self.free_bytes() - most) > 0:
                keeper.release_free(kept - excess)

    def release_freed_memory(self) -> None:
        for keeper in self._keepers:
            keeper.trims = True

    def stacks(self) -> str:
        return "\n".join(keeper.stacks() for keeper in self._keepers)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child has no part in its parent's workers
        with self.queue.changed:
            self.closing = True
            self.queue.tasks.clear()
            self.queue.changed.notify_all()
        for keeper in self._keepers:
            keeper.kill()
        join_all([keeper.thread for keeper in self._keepers], 2 * _FAREWELL)


class _Keeper:
    """The thread that looks after one worker process, and the worker."""

    def __init__(self, pool: ProcessPool, number: int) -> None:
        self._pool = pool
        self._number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self._channel: Channel | None = None
        self._stacks_fd = -1
        self._known: set[int] = set()
        self.trims = False
        """Whether the worker's heap shall give back what it keeps, before the next task."""
        self._outstanding: deque[Task] = deque()
        self.thread = Thread(self._run, f"keeper-{number}")

    def _run(self) -> None:
        # Inherited by the worker, which would otherwise die of Ctrl-C until it can ignore it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._stacks_fd = os.memfd_create("silva-stacks", os.MFD_CLOEXEC)
            while not self._pool.closing:
                try:
                    self._start()
                    self._serve()
                except EOFError:
                    self._bury()
        except Exception as error:  # noqa: BLE001  a keeper must not die in silence
            self._give_up(error)
        finally:
            self._end()
            if self._stacks_fd >= 0:
                os.close(self._stacks_fd)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._known.clear()
        with theirs:
            inherited = (theirs.fileno(), self._stacks_fd)
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    "-P",  # a file in the working directory must not take a library's place
                    _ENTRY,
                    *map(str, inherited),
                    json.dumps([os.fspath(p) for p in sys.path]),
                ],
                pass_fds=inherited,
                env={**os.environ, **ONE_THREAD},
                stdin=subprocess.DEVNULL,
            )
        if self._pool.closing:  # close() may have come before there was anything to kill
            self.kill()
        self._channel.receive()
        self.ready = True
        self._pool.false_starts = 0

    def _serve(self) -> None:
        while True:
            task = self._next(wait=not self._outstanding)
            if task is not None:
                self._send(task)
            elif not self._outstanding:
                return
            if len(self._outstanding) >= _AHEAD or task is None:
                self._take_result()

    def _next(self, wait: bool) -> Task | None:
        """Takes the next task for this worker; None if there is none. `wait`: waits for one, or
        until the pool is closed."""
        queue = self._pool.queue
        with queue.changed:
            while not self._pool.closing:
                task = queue.next(self._may_take)
                if task is not None:
                    task.runs += 1
                    self._outstanding.append(task)
                    if len(self._outstanding) == 1:
                        task.started = time.monotonic()
                    return task
                if not wait:
                    return None
                queue.changed.wait(timeout=1)
                if self.process is not None and self.process.poll() is not None:
                    raise EOFError
        return None

    def _may_take(self, task: Task) -> bool:
        """Whether the worker is in use; a raced task may go to any worker."""
        return self._number < self._pool.used or task.runs > 0

    def _send(self, task: Task) -> None:
        assert self._channel is not None
        number, pickled = self._pool.pickled(task.stage)
        try:
            if number not in self._known:
                self._channel.send(("stage", number, pickled), most_freed=0)
                self._known.add(number)
            # a buffer for its results; others stay where the memory budget reaches them
            if self.trims:
                self.trims = False
                self._channel.send(("trim", number), most_freed=0)
            self._channel.send(("task", number, task.payload, task.context), most_freed=1)
        except ConnectionError:
            raise EOFError from None
        except OSError:
            raise
        except BaseException as error:  # noqa: BLE001  whatever a class of the user's does
            self._outstanding.pop()
            text = f"rows cannot be sent to a worker process: {in_words(error)}"
            task.finish(None, StepError(text))

    def _take_result(self) -> None:
        assert self._channel is not None
        if not self._outstanding:
            return
        message = self._channel.receive_pickled()
        with self._pool.queue.changed:
            task = self._outstanding.popleft()
            task.runs -= 1
            self._pool.false_starts = 0
            if self._outstanding:
                self._outstanding[0].started = time.monotonic()
        finish(task, message)

    def _bury(self) -> None:
        """The worker died: its tasks are given out again, and the one it ran counts an attempt."""
        was_ready, self.ready = self.ready, False
        status = self._end()
        if self._pool.closing:
            return
        if not was_ready:
            self._after_false_start(status)
        with self._pool.queue.changed:
            mine = list(self._outstanding)
            self._outstanding.clear()
            for task in mine:
                task.runs -= 1
            if mine:
                mine[0].attempts += 1
            for task in mine:
                if task.attempts >= ATTEMPTS:
                    task.finish(None, _died_on(task, status))
            self._pool.queue.give_back(mine)

    def _after_false_start(self, status: int | None) -> None:
        """Gives up if no worker can be started; tries again after a pause if others run."""
        pool = self._pool
        with pool.queue.changed:
            pool.false_starts += 1
            if pool.false_starts >= ATTEMPTS * pool.width and not pool.ready:
                raise WorkerError(
                    f"a worker process could not be started ({_meaning(status)}); see its messages "
                    "above, or use loader(backend='threads')"
                )
            pause = 0.0 if pool.false_starts < ATTEMPTS else PAUSE
            pool.queue.changed.wait_for(lambda: pool.closing, pause)

    def _end(self) -> int | None:
        """Ends the worker and closes its channel; returns its exit status."""
        status = None
        if self.process is not None:
            try:  # it is on its way out, and its own status says why; else it is told to go
                status = self.process.wait(timeout=0 if self._pool.closing else PAUSE)
            except subprocess.TimeoutExpired:
                self.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = self.process.wait(timeout=_FAREWELL)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        return status

    def _give_up(self, error: Exception) -> None:
        """No worker can be started: all tasks fail, now and later."""
        if not isinstance(error, SilvaError):
            wrapped = WorkerError(
                f"a worker process could not be kept ({type(error).__name__}: {error}); if the "
                "limit of open files or memory is low, raise it, or use loader(backend='threads')"
            )
            wrapped.__cause__ = error
            error = wrapped
        with self._pool.queue.changed:
            given = list(self._outstanding)
            self._outstanding.clear()
        self._pool.queue.give_up(error, given)

    def free_bytes(self) -> int:
        """Bytes of the shared memory that waits for the next task or result."""
        channel = self._channel
        return 0 if channel is None else channel.arena.free_bytes() + channel.mapped.free_bytes()

    def release_free(self, most: float) -> None:
        """Releases shared memory that waits for the next task or result, as far as it is more than
        `most` bytes."""
        channel = self._channel
        if channel is not None:
            channel.mapped.release_free(most)
            channel.arena.release_free(most - channel.mapped.free_bytes())

    def end_if_outrun(self) -> None:
        """Kills a worker that still runs a task which another has finished; its other tasks are
        given out again."""
        with self._pool.queue.changed:
            outrun = bool(self._outstanding) and self._outstanding[0].finished.is_set()
        if outrun:
            self.kill()

    def end_if_useless(self) -> None:
        """Kills a worker that was stopped (SIGSTOP) or lost a race."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        self.end_if_outrun()
        if _is_stopped(process.pid):
            self.kill()

    def stacks(self) -> str:
        """The stack of every thread of the worker, which it writes to a file on a signal."""
        process = self.process
        if process is None or not self.ready:
            return f"worker {self._number}: not started"
        os.ftruncate(self._stacks_fd, 0)
        os.lseek(self._stacks_fd, 0, os.SEEK_SET)  # the worker's place in the file too
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + 1
        text = b""
        while time.monotonic() < until:
            time.sleep(0.02)
            before, text = text, os.pread(self._stacks_fd, 1 << 16, 0)
            if text and text == before:
                break
        shown = text.replace(b"\0", b"").decode(errors="replace")
        return f"worker {self._number} (process {process.pid}):\n{shown or '  (no answer)'}"

    def kill(self) -> None:
        process = self.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                process.kill()


def _is_stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def may_repeat(stage: Runs) -> bool:
    """Whether no step of the stage is impure. (What a dead worker did is repeated in any case.)"""
    return not any(function.marks.impure for function in functions_of(stage))


def _died_on(task: Task, status: int | None) -> WorkerError:
    return WorkerError(
        f"{ATTEMPTS} worker processes ended one after another ({_meaning(status)}) "
        f"while doing {task.describe()} in `{task.stage.label}`"
    )


def _meaning(status: int | None) -> str:
    if status is None:
        return "no exit status"
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    hint = ": out of memory, or killed by hand" if name == "SIGKILL" else ""
    return f"signal {name}{hint}"


def finish(task: Task, message: Message) -> None:
    """Finishes a task with what its worker sent: (results, None) or (None, error)."""
    try:
        results, error = message.load()
    except BaseException as failed:  # noqa: BLE001  whatever a class of the user's does when it is rebuilt
        words = f"a result of `{task.stage.label}` cannot be read by the loader: {in_words(failed)}"
        task.finish(None, StepError(words))
        return
    task.finish(results, None if error is None else _rebuilt(task, error))


def _rebuilt(task: Task, error: tuple[str, bytes | None, bytes | None]) -> BaseException:
    """The error that a worker sent, as it was raised there."""
    words, pickled, cause = error
    found = unpickled(pickled)
    if isinstance(found, SilvaError | KeyboardInterrupt):
        found.__cause__ = unpickled(cause)
        return found
    wrapped = StepError(f"`{task.stage.label}` failed on {task.describe()}: {words}")
    wrapped.__cause__ = found
    return wrapped
