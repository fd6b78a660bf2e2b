"""A worker process: this file is its program; the user's script is not imported again.

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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silva.physical.stage.call import Worker
    from silva.physical.stage.stage import Runs
    from silva.run.pools.channel import Channel, Message


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
    from silva.physical.stage.call import Worker
    from silva.run.pools.channel import Channel
    from silva.run.pools.task import execute  # noqa: F401  now, not when the first block is there
    from silva.run.shared.allocator import keep_freed_memory

    keep_freed_memory()
    channel = Channel(sock)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    try:
        channel.send("ready")
    except ConnectionError:
        os._exit(0)
    threading.Thread(target=_listen, args=(channel, messages), daemon=True).start()
    worker = Worker(shares_generators=False)
    stages: dict[int, bytes | Runs] = {}
    while True:
        _answer(channel, stages, worker, messages.get())


def _listen(channel: Channel, messages: queue.SimpleQueue[Message]) -> None:
    try:
        while True:
            messages.put(channel.receive_pickled())
    except EOFError:
        os._exit(0)
    except BaseException:  # noqa: BLE001  a worker that cannot read its orders must not linger
        faulthandler.dump_traceback()
        os._exit(1)


def _answer(
    channel: Channel, stages: dict[int, bytes | Runs], worker: Worker, message: Message
) -> None:
    """Stores a stage, releases memory, or runs a stage and sends its results."""
    from silva.columns import empty
    from silva.run.pools.task import execute
    from silva.run.shared.allocator import release_freed_memory

    shared = None
    try:
        kind, number, *rest = message.load()
        if kind == "stage":
            stages[number] = rest[0]
            return
        if kind == "trim":
            release_freed_memory()
            return
        stage = stages[number]
        if isinstance(stage, bytes):
            stage = stages[number] = pickle.loads(stage)  # noqa: S301  from our own parent
        shared = channel.shared_buffer()
        payload, context = rest
        allocate = empty if shared is None else shared.allocate
        results = execute(stage, payload, context, worker, allocate)
        reply: tuple[Any, Any] = (results, None)
    except BaseException as error:  # noqa: BLE001  raised again in the parent
        reply = (None, portable(error))
    try:
        channel.send(reply, shared)
    except ConnectionError:
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  a result that cannot be pickled, for any reason
        assert not isinstance(stage, bytes)  # it has run
        channel.send((None, portable(unsendable(stage, error))))


def unsendable(stage: Runs, error: BaseException) -> BaseException:
    """The error for a result that cannot be pickled."""
    from silva.errors import StepError
    from silva.physical.stage.raised import in_words

    return StepError(
        f"a result of `{stage.label}` cannot be sent back to the loader: {in_words(error)}"
    )


def portable(error: BaseException) -> tuple[str, bytes | None, bytes | None]:
    """An exception as text and, if they can be pickled, itself and its cause. An exception that
    stops the loop, such as KeyboardInterrupt, keeps its type."""
    from silva.physical.stage.raised import in_words, pickled, user_traceback

    if isinstance(error, KeyboardInterrupt):
        error = KeyboardInterrupt()
    words = f"{in_words(error)}\n{user_traceback(error).rstrip()}"
    cause = error.__cause__
    return words, pickled(error), None if cause is None else pickled(cause)


def _die_with_parent() -> None:
    """Asks Linux to end this process when the thread that started it ends."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
