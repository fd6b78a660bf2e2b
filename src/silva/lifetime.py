"""Ends threads and suspended generators before the interpreter is finalised.

silva's threads are daemons, since a step that hangs must not keep Python from exiting. But before
3.14, CPython unwinds the stack of a daemon that still runs during finalisation as soon as it asks
for the GIL; with C++ code on that stack (OpenCV, Arrow, torch) that calls `std::terminate`, and the
process aborts. And a generator that is still suspended then is closed after the modules that its
`finally` needs. So everything has an owner that ends it earlier: the owner of a thread stops and
joins it when it is closed, and owners that were never closed are closed here, at exit, before
finalisation begins.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

FAREWELL = 1.0
"""Seconds that an owner waits for its threads; one that hangs in a step is abandoned."""


class Closable(Protocol):
    def close(self) -> Any: ...


class Thread(threading.Thread):
    """A named daemon thread, which is joined at exit and interrupted if it does not end."""

    def __init__(self, target: Callable[..., Any], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, args=args, name=f"silva-{name}", daemon=True)

    def run(self) -> None:
        with contextlib.suppress(Exit):
            super().run()


class Exit(KeyboardInterrupt):
    """Raised in a thread that still runs when Python exits."""


def join_all(threads: Iterable[threading.Thread], seconds: float = FAREWELL) -> None:
    """Waits for threads to end, at most `seconds` for all of them together. Does nothing on one of
    the threads themselves, where garbage collection may call it."""
    until = time.monotonic() + seconds
    mine = list(threads)
    if threading.current_thread() in mine:
        return
    for thread in mine:
        if thread.ident is not None:
            thread.join(timeout=max(0.0, until - time.monotonic()))


# Closing at exit.

_lock = threading.Lock()
_owners: weakref.WeakValueDictionary[int, Closable] = weakref.WeakValueDictionary()
"""Owners by `id`, in the order of registration: the last one is closed first."""


def close_at_exit(owner: Closable) -> None:
    """Closes an owner of threads, or a generator, when Python exits, if it still exists. Objects
    made on a thread of silva's are left to that thread, which its own owner ends."""
    if isinstance(threading.current_thread(), Thread):
        return
    with _lock:
        _owners.pop(id(owner), None)
        _owners[id(owner)] = owner
    atexit.unregister(_end)
    atexit.register(_end)  # runs before the exit handlers of all libraries imported so far


def _end() -> None:
    with _lock:
        owners = list(_owners.values())
    with contextlib.ExitStack() as stack:  # in reverse, and all of them whatever one raises
        stack.callback(_end_threads)
        for owner in owners:
            stack.callback(_close, owner)


def _close(owner: Closable) -> None:
    try:
        owner.close()
    except ValueError as error:
        if "already executing" not in str(error):  # a generator that another thread is running
            raise


def _end_threads() -> None:
    join_all(_alive())
    for thread in _alive():  # takes effect between two of its Python instructions
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(Exit))
    join_all(_alive())
    if _alive() and sys.version_info < (3, 14):
        _park_aborting_threads()


def _alive() -> list[Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, Thread)]


def _park_aborting_threads() -> None:
    """Makes `sleep` the handler of SIGABRT. A remaining thread is in a native call. If it returns
    during finalisation and CPython unwinds it through C++ code, `abort` calls the handler: the
    thread sleeps for as many seconds as the signal's number (6), and the process exits
    meanwhile."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))


def _forget() -> None:
    """Starts afresh in a forked child, which has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    _owners.clear()


os.register_at_fork(after_in_child=_forget)
