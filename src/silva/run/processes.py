"""Worker processes: one thread of the parent looks after each.

The thread keeps its worker busy (two tasks at a time, so that the next is there when one is done),
takes results, and when the worker dies starts another and hands its tasks out again. A task on
which three workers died is an error that names its rows. A worker that is stopped, or is still at
a task that another has done meanwhile, is ended and replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from silva.errors import SilvaError, WorkerError
from silva.physical.call import Worker
from silva.physical.stage import Runs
from silva.run.channel import Channel
from silva.run.pickling import functions_of, pickle_stage
from silva.run.task import Task, execute
from silva.run.threads import PAUSE, check_owner, join_all

ATTEMPTS = 3
_AHEAD = 2
"""Tasks that a worker holds: the one it does and the next."""
_FAREWELL = 5.0
"""Seconds that a killed process may take to be gone."""
_ENTRY = str(Path(__file__).with_name("worker.py"))
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
        "OPENCV_FOR_THREADS_NUM", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS",
    ),
    "1",
)  # fmt: skip


class ProcessPool:
    def __init__(self, width: int) -> None:
        self.width = width
        self._used = width
        self._owner = os.getpid()
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._broken: Exception | None = None
        """Why no worker can be had any more."""
        self._raced = False
        """A task was given to a second worker at some time."""
        self._false_starts = 0
        """Workers that ended before they were ready, since anything went well."""
        self._stages: dict[int, tuple[Runs, bytes]] = {}
        self._keepers = [_Keeper(self, i) for i in range(width)]
        for keeper in self._keepers:
            keeper.thread.start()

    @property
    def ready(self) -> bool:
        """At least one worker has started."""
        return any(keeper.ready for keeper in self._keepers)

    @property
    def complete(self) -> bool:
        """No worker that is needed is still starting."""
        return all(keeper.ready for keeper in self._keepers[: self._used])

    def processes(self) -> list[int]:
        """The workers' process numbers."""
        found = [k.process for k in self._keepers]
        return [p.pid for p in found if p is not None and p.poll() is None]

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        self._pickled(task.stage)  # fails here, on the consumer's thread, where it can be read
        with self._changed:
            if self._broken is not None:
                raise self._broken
            self._tasks.append(task)
            self._changed.notify_all() if self._used < self.width else self._changed.notify()

    def _pickled(self, stage: Runs) -> tuple[int, bytes]:
        number = id(stage)
        if number not in self._stages:
            self._stages[number] = (stage, pickle_stage(stage))
        return number, self._stages[number][1]

    def help(self, task: Task, worker: Worker) -> None:
        """While the workers start, a task that none of them has is done here."""
        if self.ready:
            return
        with self._changed:
            if task not in self._tasks:
                return
            self._tasks.remove(task)
        task.finish(execute(task.stage, task.payload, task.context, worker))

    def race(self, task: Task) -> None:
        """Gives a task that is slow to a second worker; the first result counts."""
        with self._changed:
            waits = task in self._tasks or task.finished.is_set()
            if task.runs == 1 and not waits and may_repeat(task.stage):
                self._tasks.appendleft(task)
                self._raced = True
                self._changed.notify_all()

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
        if count != self._used:
            with self._changed:
                self._used = count
                self._changed.notify_all()

    def stacks(self) -> str:
        return "\n".join(keeper.stacks() for keeper in self._keepers)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child has no part in its parent's workers
        with self._changed:
            self._closing = True
            self._tasks.clear()
            self._changed.notify_all()
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
        self._outstanding: deque[Task] = deque()
        self.thread = threading.Thread(target=self._run, name=f"silva-keeper-{number}", daemon=True)

    def _run(self) -> None:
        # Inherited by the worker, which would otherwise die of Ctrl-C until it can ignore it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._stacks_fd = os.memfd_create("silva-stacks", os.MFD_CLOEXEC)
            while not self._pool._closing:
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
        if self._pool._closing:  # close() may have come before there was anything to kill
            self.kill()
        self._channel.receive()
        self.ready = True
        self._pool._false_starts = 0

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
        """A task to send, if there is one (`wait`: until there is, or the pool is closed); it is
        this worker's from here on."""
        pool = self._pool
        with pool._changed:
            while not pool._closing:
                while pool._tasks and self._may_take(pool._tasks[0]):
                    task = pool._tasks.popleft()
                    if not (task.cancelled or task.finished.is_set()):
                        task.runs += 1
                        self._outstanding.append(task)
                        if len(self._outstanding) == 1:
                            task.started = time.monotonic()
                        return task
                if not wait:
                    return None
                pool._changed.wait(timeout=1)
                if self.process is not None and self.process.poll() is not None:
                    raise EOFError
        return None

    def _may_take(self, task: Task) -> bool:
        """Whether the worker is one of those in use; all help where one is too slow."""
        return self._number < self._pool._used or task.runs > 0

    def _send(self, task: Task) -> None:
        assert self._channel is not None
        number, pickled = self._pool._pickled(task.stage)
        try:
            if number not in self._known:
                self._channel.send(("stage", number, pickled))
                self._known.add(number)
            self._channel.send(("task", number, task.payload, task.context))
        except ConnectionError:
            raise EOFError from None
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._outstanding.pop()
            task.finish(None, SilvaError(f"rows cannot be sent to a worker process: {error}"))

    def _take_result(self) -> None:
        assert self._channel is not None
        if not self._outstanding:
            return
        message = self._channel.receive_pickled()
        with self._pool._changed:
            task = self._outstanding.popleft()
            task.runs -= 1
            self._pool._false_starts = 0
            if self._outstanding:
                self._outstanding[0].started = time.monotonic()
        try:
            results, error = message.load()
        except Exception as error:  # noqa: BLE001  whatever a class of the user's does when it is rebuilt
            text = f"a result of `{task.stage.label}` cannot be read by the loader: {error!r}"
            task.finish(None, SilvaError(text))
            return
        task.finish(results, None if error is None else rebuilt(task, error))

    def _bury(self) -> None:
        """The worker died: its tasks go back, and the one it was doing is blamed."""
        was_ready, self.ready = self.ready, False
        status = self._end()
        pool = self._pool
        if pool._closing:
            return
        if not was_ready:
            self._after_false_start(status)
        with pool._changed:
            mine = list(self._outstanding)
            self._outstanding.clear()
            for task in mine:
                task.runs -= 1
            if mine:
                mine[0].attempts += 1
            for task in mine:
                if task.attempts >= ATTEMPTS:
                    task.finish(None, _died_on(task, status))
            back = [t for t in mine if not t.finished.is_set() and not t.runs]
            pool._tasks.extendleft(t for t in reversed(back) if t not in pool._tasks)
            pool._changed.notify_all()

    def _after_false_start(self, status: int | None) -> None:
        """Gives up where no worker can be had; where others work, tries again, but not in haste."""
        pool = self._pool
        with pool._changed:
            pool._false_starts += 1
            if pool._false_starts >= ATTEMPTS * pool.width and not pool.ready:
                raise WorkerError(
                    f"a worker process could not be started ({_meaning(status)}); see its messages "
                    "above, or use loader(backend='threads')"
                )
            pause = 0.0 if pool._false_starts < ATTEMPTS else PAUSE
            pool._changed.wait_for(lambda: pool._closing, pause)

    def _end(self) -> int | None:
        """Makes sure that the worker is gone, and closes the line to it. Its exit status."""
        status = None
        if self.process is not None:
            try:  # it is on its way out, and its own status says why; else it is told to go
                status = self.process.wait(timeout=0 if self._pool._closing else PAUSE)
            except subprocess.TimeoutExpired:
                self.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = self.process.wait(timeout=_FAREWELL)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        return status

    def _give_up(self, error: Exception) -> None:
        """No worker can be had: everything that waits for one fails, now and later."""
        if not isinstance(error, SilvaError):
            wrapped = WorkerError(
                f"a worker process could not be kept ({type(error).__name__}: {error}); if the "
                "limit of open files or memory is low, raise it, or use loader(backend='threads')"
            )
            wrapped.__cause__ = error
            error = wrapped
        pool = self._pool
        with pool._changed:
            pool._broken = error
            tasks = [*self._outstanding, *pool._tasks]
            self._outstanding.clear()
            pool._tasks.clear()
        for task in tasks:
            task.finish(None, error)

    def end_if_outrun(self) -> None:
        """Kills a worker that is still at what another has done: what else it holds is done
        elsewhere."""
        with self._pool._changed:
            outrun = bool(self._outstanding) and self._outstanding[0].finished.is_set()
        if outrun:
            self.kill()

    def end_if_useless(self) -> None:
        """Kills a worker that was stopped (SIGSTOP), or outrun."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        self.end_if_outrun()
        if _is_stopped(process.pid):
            self.kill()

    def stacks(self) -> str:
        """The stack of every thread of the worker, as it writes it itself."""
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


def may_repeat(stage: Any) -> bool:
    """No step of the stage is marked as impure. (A dead worker's work is repeated all the same.)"""
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


def rebuilt(task: Task, error: tuple[str, str, bytes | None]) -> BaseException:
    from silva.physical.context import _unpickled

    text, trace, pickled = error
    found = None if pickled is None else _unpickled(pickled)
    if isinstance(found, SilvaError):
        return found
    wrapped = SilvaError(f"`{task.stage.label}` failed on {task.describe()}: {text}\n{trace}")
    wrapped.__cause__ = found
    return wrapped
