"""Exceptions of user code: as text, and in a form that can be sent between processes.

Whatever a step raises is its row's failure (StopIteration, GeneratorExit, SystemExit, the panics of
native libraries), except `KeyboardInterrupt`, which stops the loop as Ctrl-C does. So around each
call of user code stands `except KeyboardInterrupt: raise` and then `except BaseException`.

An exception is user code too: its `__str__`, `__reduce__` or `__notes__` may raise in turn. Nothing
here does.
"""

from __future__ import annotations

import os
import pickle
import sysconfig
import traceback

_PYTHON = sysconfig.get_path("stdlib") + os.sep
"""Where files of the standard library begin."""


def in_words(error: BaseException) -> str:
    """The exception's type and message, or a note if the message itself raises.

    >>> in_words(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    try:
        return f"{type(error).__name__}: {_encodable(str.__str__(str(error)))}"
    except BaseException as other:  # noqa: BLE001  a message that cannot be had is no reason to stop
        return f"{type(error).__name__} (its message cannot be shown: {type(other).__name__})"


def cure_of(error: BaseException) -> str:
    """Advice for an exception whose reason silva knows; empty for most."""
    if isinstance(error, ValueError | TypeError) and "read-only" in in_words(error):
        return (
            "Inputs are read-only, since other steps read them too: mark the function "
            "@sv.owns('column') to get a private copy of that column, or change a copy\n"
        )
    return ""


def user_traceback(error: BaseException) -> str:
    """The traceback without silva's own frames, as the user would have seen it."""
    try:
        return _encodable(_user_traceback(error))
    except BaseException:  # noqa: BLE001  what cannot be shown is at least named
        return f"{in_words(error)}\n"


def _user_traceback(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    marker = f"{__name__.split('.')[0]}/"
    own = [f for f in frames if f"/{marker}" not in f.filename.replace("\\", "/")]
    if own and own[-1] is not frames[-1] and all(map(_is_pythons, own)):
        own = []  # an error of silva's own: threads and contexts on its way say nothing
    lines = ["Traceback (most recent call last):\n"] if own else []
    lines += traceback.format_list(own)
    lines += traceback.format_exception_only(error)
    return "".join(lines)


def _is_pythons(frame: traceback.FrameSummary) -> bool:
    """Whether the frame is of Python's standard library."""
    return frame.filename.startswith(_PYTHON) and "site-packages" not in frame.filename


def _encodable(text: str) -> str:
    """The text with lone surrogates escaped, so that any file or terminal accepts it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def pickled(error: BaseException | None) -> bytes | None:
    """The pickled exception; None if it cannot be pickled, so that only its text remains."""
    try:
        import cloudpickle

        data: bytes = cloudpickle.dumps(error)
    except BaseException:  # noqa: BLE001  a user's exception need not be picklable
        return None
    return data


def unpickled(data: bytes | None) -> BaseException | None:
    """The exception that a worker of this process sent; None if it cannot be rebuilt."""
    try:
        loaded = None if data is None else pickle.loads(data)  # noqa: S301
    except BaseException:  # noqa: BLE001  it pickled but cannot be rebuilt: the words remain
        return None
    return loaded if isinstance(loaded, BaseException) else None


def shown(value: object) -> str:
    """A value in a few characters, for a message; its `repr` may raise, too."""
    try:
        return f"{value!r:.40}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  an object of the user's that cannot be shown
        return f"a {type(value).__name__}"
