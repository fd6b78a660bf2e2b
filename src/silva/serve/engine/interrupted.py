"""A step that raises `KeyboardInterrupt`, which ends a program and not a server.

On the main thread it may be Ctrl-C, and passes. On any other one it is the step's: the request that
it worked on ends, and the thread and the event loop go on. In a program, whoever asked gets the
interrupt that was raised, as a loop over a loader does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from silva.errors import SilvaError
from silva.lifetime import Exit


class Interrupted(SilvaError):
    """A step or the opening of a model was interrupted."""


def interrupted(what: str, error: KeyboardInterrupt) -> Interrupted:
    """What the requests end with that were worked on. Raises the interrupt again on the main
    thread, and where Python exits."""
    if isinstance(error, Exit) or threading.current_thread() is threading.main_thread():
        raise error
    made = Interrupted(f"`{what}` was interrupted: it raised KeyboardInterrupt")
    made.__cause__ = error
    return made


@contextlib.contextmanager
def passing_on() -> Iterator[None]:
    """Raises the interrupt of a step in whoever asked."""
    try:
        yield
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error
