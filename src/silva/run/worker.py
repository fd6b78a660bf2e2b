"""A worker process: this file is run as it is, never the user's script a second time.

The parent sends stages once and then inputs; results go back through the channel. A second thread
reads the socket, so that the process ends at once when the parent is gone, whatever the main thread
does.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from typing import Any


def main() -> None:
    """Serves one parent. Arguments: a socket, a file for stacks (both inherited), and sys.path."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked until it was ignored
    sock = socket.socket(fileno=int(sys.argv[1]))
    stacks = os.fdopen(int(sys.argv[2]), "w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    sys.path[:] = json.loads(sys.argv[3])
    sys.argv[1:] = []
    from silva.physical.call import Worker
    from silva.run.channel import Channel
    from silva.run.freed import keep_freed_memory
    from silva.run.task import execute  # noqa: F401  now, not when the first block is there

    keep_freed_memory()
    channel = Channel(sock)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        channel.send("ready")
    except ConnectionError:
        os._exit(0)
    threading.Thread(target=_listen, args=(channel, messages), daemon=True).start()
    worker = Worker(shares_generators=False)
    stages: dict[int, Any] = {}
    while True:
        _answer(channel, stages, worker, messages.get())


def _listen(channel: Any, messages: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(channel.receive_pickled())
    except EOFError:
        os._exit(0)
    except BaseException:  # noqa: BLE001  a worker that cannot read its orders must not linger
        faulthandler.dump_traceback()
        os._exit(1)


def _answer(channel: Any, stages: dict[int, Any], worker: Any, message: Any) -> None:
    """Takes note of a stage, or runs one and sends what came of it."""
    from silva.columns import empty
    from silva.run.task import execute

    segment = None
    try:
        kind, number, *rest = message.load()
        if kind == "stage":
            stages[number] = rest[0]
            return
        if isinstance(stages[number], bytes):
            stages[number] = pickle.loads(stages[number])  # noqa: S301  from our own parent
        segment = channel.segment()
        payload, context = rest
        allocate = empty if segment is None else segment.allocate
        results = execute(stages[number], payload, context, worker, allocate)
        reply: tuple[Any, Any] = (results, None)
    except BaseException as error:  # noqa: BLE001  raised again in the parent
        reply = (None, portable(error))
    try:
        channel.send(reply, segment)
    except ConnectionError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001  a result that cannot be pickled, for whatever reason
        text = f"a result of `{stages[number].label}` cannot be sent back to the loader: {error}"
        channel.send((None, portable(TypeError(text))))


def portable(error: BaseException) -> tuple[str, str, bytes | None]:
    """An exception as text and, where it pickles, as itself."""
    from silva.physical.context import _pickled
    from silva.physical.rows import user_traceback

    return f"{type(error).__name__}: {error}", user_traceback(error), _pickled(error)


def _die_with_parent() -> None:
    """Asks Linux to end this process when the thread that started it ends."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
