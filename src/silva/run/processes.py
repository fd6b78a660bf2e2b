"""Worker processes: one thread of the parent looks after each.

The thread keeps its worker busy (two tasks at a time, so that the next is there when one is done), takes
results, and when the worker dies starts another and hands its tasks out again. A task on which three
workers died is an error that names its rows.
"""

from __future__ import annotations

import contextlib
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
from typing import Any

import psutil

from silva.errors import PicklingError, SilvaError, WorkerError
from silva.physical.stage import Runs
from silva.run.channel import Channel
from silva.run.task import Task
from silva.run.threads import PAUSE

ATTEMPTS = 3
_AHEAD = 2
"""Tasks that a worker holds: the one it does and the next."""
_ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM", "RAYON_NUM_THREADS",
    )
}  # fmt: skip


class ProcessPool:
    def __init__(self, width: int) -> None:
        self.width = width
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._stages: dict[int, tuple[Runs, bytes]] = {}
        self._keepers = [_Keeper(self, i) for i in range(width)]
        for keeper in self._keepers:
            keeper.thread.start()

    @property
    def ready(self) -> bool:
        """At least one worker has started."""
        return any(keeper.ready for keeper in self._keepers)

    def processes(self) -> list[int]:
        """The workers' process numbers."""
        return [k.process.pid for k in self._keepers if k.process is not None]

    def submit(self, task: Task) -> None:
        self._pickled(task.stage)  # fails here, on the consumer's thread, where it can be read
        with self._changed:
            self._tasks.append(task)
            self._changed.notify()

    def _pickled(self, stage: Runs) -> tuple[int, bytes]:
        number = id(stage)
        if number not in self._stages:
            self._stages[number] = (stage, pickle_stage(stage))
        return number, self._stages[number][1]

    def claim(self, task: Task) -> bool:
        """Takes a task back that no worker has started, to do it here."""
        with self._changed:
            if task in self._tasks:
                self._tasks.remove(task)
                return True
        return False

    def race(self, task: Task) -> None:
        """Gives a task that is slow to a second worker; the first result counts."""
        with self._changed:
            if task.runs == 1 and task not in self._tasks and not task.finished.is_set():
                self._tasks.appendleft(task)
                self._changed.notify()

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        began = time.monotonic()
        while not task.finished.wait(PAUSE):
            for keeper in self._keepers:
                keeper.end_if_stopped()
            on_idle(time.monotonic() - began)

    def stacks(self) -> str:
        return "\n".join(keeper.stacks() for keeper in self._keepers)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._tasks.clear()
            self._changed.notify_all()
        for keeper in self._keepers:
            keeper.kill()
        for keeper in self._keepers:
            keeper.thread.join(timeout=10)


class _Keeper:
    """The thread that looks after one worker process, and the worker."""

    def __init__(self, pool: ProcessPool, number: int) -> None:
        self._pool = pool
        self._number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self._channel: Channel | None = None
        self._stacks_fd = os.memfd_create("silva-stacks", 0)
        self._known: set[int] = set()
        self._outstanding: deque[Task] = deque()
        self._starts = 0
        self.thread = threading.Thread(target=self._run, name=f"silva-keeper-{number}", daemon=True)

    def _run(self) -> None:
        try:
            while not self._pool._closing:
                try:
                    self._start()
                    self._serve()
                except EOFError:
                    self._bury()
        except Exception as error:  # noqa: BLE001  a keeper must not die in silence
            self._fail_all(error)
        finally:
            self.kill()
            if self._channel is not None:
                self._channel.close()
            os.close(self._stacks_fd)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": _silva_folder()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "silva.run.worker", str(theirs.fileno()), str(self._stacks_fd)],
            pass_fds=(theirs.fileno(), self._stacks_fd),
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._channel = Channel(ours)
        self._known.clear()
        self._channel.send(sys.path)
        self._channel.receive()
        self.ready = True
        self._starts = 0

    def _serve(self) -> None:
        assert self._channel is not None
        while True:
            task = self._next(wait=not self._outstanding)
            if task is not None:
                self._send(task)
            elif not self._outstanding:
                return
            if len(self._outstanding) >= _AHEAD or task is None:
                self._take_result()

    def _next(self, wait: bool) -> Task | None:
        pool = self._pool
        with pool._changed:
            while wait and not pool._tasks and not pool._closing:
                pool._changed.wait(timeout=1)
                if self.process is not None and self.process.poll() is not None:
                    raise EOFError
            if pool._closing or not pool._tasks:
                return None
            task = pool._tasks.popleft()
            task.runs += 1
            return task

    def _send(self, task: Task) -> None:
        assert self._channel is not None
        if task.cancelled or task.finished.is_set():
            return
        self._outstanding.append(task)
        if len(self._outstanding) == 1:
            task.started = time.monotonic()
        number, pickled = self._pool._pickled(task.stage)
        try:
            if number not in self._known:
                self._channel.send(("stage", number, pickled))
                self._known.add(number)
            self._channel.send(("task", id(task), number, task.payload, task.context))
        except (BrokenPipeError, ConnectionError):
            raise EOFError from None
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._outstanding.pop()
            task.finish(None, SilvaError(f"rows cannot be sent to a worker process: {error}"))

    def _take_result(self) -> None:
        assert self._channel is not None
        if not self._outstanding:
            return
        _, result, error = self._channel.receive()
        task = self._outstanding.popleft()
        task.runs -= 1
        if self._outstanding:
            self._outstanding[0].started = time.monotonic()
        task.finish(result, None if error is None else _rebuilt(task, error))

    def _bury(self) -> None:
        """The worker died: its tasks go back, and the one it was doing is blamed."""
        was_ready, self.ready = self.ready, False
        status = None if self.process is None else self.process.wait()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        pool = self._pool
        if pool._closing:
            return
        if not was_ready:
            self._starts += 1
            if self._starts >= ATTEMPTS:
                raise WorkerError(
                    f"a worker process could not be started ({_meaning(status)}); see its messages "
                    "above, or use loader(backend='threads')"
                )
        for i, task in enumerate(self._outstanding):
            task.runs -= 1
            task.attempts += i == 0
            if task.attempts >= ATTEMPTS:
                task.finish(
                    None,
                    WorkerError(
                        f"{ATTEMPTS} worker processes ended one after another ({_meaning(status)}) "
                        f"while doing {task.describe()} in `{task.stage.label}`"
                    ),
                )
        with pool._changed:
            back = [t for t in self._outstanding if not t.finished.is_set() and not t.runs]
            pool._tasks.extendleft(reversed(back))
            pool._changed.notify_all()
        self._outstanding.clear()

    def _fail_all(self, error: Exception) -> None:
        with self._pool._changed:
            tasks = [*self._outstanding, *self._pool._tasks]
            self._pool._tasks.clear()
        for task in tasks:
            task.finish(None, error)

    def end_if_stopped(self) -> None:
        """Kills a worker that was stopped (SIGSTOP): its work is done again elsewhere."""
        process = self.process
        if process is None or not self._outstanding:
            return
        with contextlib.suppress(psutil.Error):
            if psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                self.kill()

    def stacks(self) -> str:
        """The stack of every thread of the worker, as it writes it itself."""
        process = self.process
        if process is None:
            return f"worker {self._number}: not started"
        os.ftruncate(self._stacks_fd, 0)
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGUSR1)
        until = time.monotonic() + 1
        while os.fstat(self._stacks_fd).st_size == 0 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.02)
        text = os.pread(self._stacks_fd, 1 << 16, 0).replace(b"\0", b"").decode(errors="replace")
        return f"worker {self._number} (process {process.pid}):\n{text or '  (no answer)'}"

    def kill(self) -> None:
        process = self.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                process.kill()


def _silva_folder() -> str:
    """Where silva is imported from, so that a worker finds it before it has our sys.path."""
    import silva

    folder = os.path.dirname(os.path.dirname(os.path.abspath(silva.__file__)))
    inherited = os.environ.get("PYTHONPATH")
    return f"{folder}{os.pathsep}{inherited}" if inherited else folder


def _meaning(status: int | None) -> str:
    if status is None:
        return "no exit status"
    if status < 0:
        name = signal.Signals(-status).name
        hint = ": out of memory, or killed by hand" if name == "SIGKILL" else ""
        return f"signal {name}{hint}"
    return f"exit status {status}"


def _rebuilt(task: Task, error: tuple[str, str, bytes | None]) -> BaseException:
    from silva.physical.context import _unpickled

    text, trace, pickled = error
    found = None if pickled is None else _unpickled(pickled)
    if isinstance(found, SilvaError):
        return found
    wrapped = SilvaError(f"`{task.stage.label}` failed on {task.describe()}: {text}\n{trace}")
    wrapped.__cause__ = found
    return wrapped


def pickle_stage(stage: Runs) -> bytes:
    """The stage as bytes; where that fails, an error that names the variable at fault."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(stage)
    except Exception as error:
        raise PicklingError(
            f"`{stage.label}` cannot be sent to a worker process: {_culprit(stage) or error}. Build it "
            "in the worker with @sv.stateful, or use loader(backend='threads')"
        ) from error
    return data


def _culprit(stage: Any) -> str | None:
    """Which variable of which function cannot be pickled."""
    for step in getattr(stage, "steps", None) or getattr(stage, "nodes", ()):
        function = getattr(step, "function", None) or getattr(step, "step", None)
        fn = getattr(function, "fn", None)
        if fn is None or _pickles(fn):
            continue
        where = function.where  # type: ignore[union-attr]
        code = getattr(fn, "__code__", None)
        cells = zip(getattr(code, "co_freevars", ()), fn.__closure__ or (), strict=False)
        variables = {name: cell.cell_contents for name, cell in cells}
        used = {n: fn.__globals__[n] for n in getattr(code, "co_names", ()) if n in fn.__globals__}
        for name, value in {**used, **variables}.items():
            if not _pickles(value):
                return f"the variable {name!r} ({type(value).__name__}) of the function at {where}"
        return f"the function at {where}"
    return None


def _pickles(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  any failure to pickle is the answer
        return False
    return True
