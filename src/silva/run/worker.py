"""A worker process: started from here, never by importing the user's script again.

The parent sends stages once and then inputs; results go back through the channel. A second thread reads
the socket, so that the process ends at once when the parent is gone, whatever the main thread does.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from typing import Any


def main() -> None:
    """Serves one parent over the inherited socket whose number is the first argument."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    sock = socket.socket(fileno=int(sys.argv[1]))
    stacks = os.fdopen(int(sys.argv[2]), "w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    from silva.physical.call import Worker
    from silva.run.channel import Channel

    channel = Channel(sock)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    sys.path[:] = channel.receive()
    channel.send("ready")
    threading.Thread(target=_listen, args=(channel, messages), daemon=True).start()
    worker = Worker(shares_generators=False)
    stages: dict[int, Any] = {}
    while True:
        kind, number, *rest = messages.get()
        if kind == "stage":
            stages[number] = rest[0]
        else:
            _serve(channel, stages, worker, number, *rest)
            del rest


def _listen(channel: Any, messages: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(channel.receive())
    except EOFError:
        os._exit(0)
    except BaseException:  # noqa: BLE001  a worker that cannot read its orders must not linger
        faulthandler.dump_traceback()
        os._exit(1)


def _serve(
    channel: Any, stages: dict[int, Any], worker: Any, task: int, stage: int, payload: Any, context: Any
) -> None:
    from silva.run.task import execute

    segment = channel.segment()
    try:
        if isinstance(stages[stage], bytes):
            stages[stage] = pickle.loads(stages[stage])  # noqa: S301  from our own parent
        result = execute(stages[stage], payload, context, worker, segment.allocate)
        reply = (task, result, None)
    except BaseException as error:  # noqa: BLE001  raised again in the parent
        reply = (task, None, _portable(error))
    try:
        channel.send(reply, segment)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        text = f"a result of `{stages[stage].label}` cannot be sent back to the loader: {error}"
        channel.send((task, None, _portable(TypeError(text))))


def _portable(error: BaseException) -> tuple[str, str, bytes | None]:
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
