"""The errors that silva raises. Each message says what happened, where, and what to do."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Returns text that every terminal and file accepts.

    Bytes of a file name that are not UTF-8, which Python holds as lone surrogates, are escaped.

    >>> printable("caf\udce9.jpg")
    'caf\\udce9.jpg'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust, such as Lance, panicked: that is not an Exception."""
    return type(error).__name__ == "PanicException"


def no_unicode(name: str) -> str:
    """Returns the message for text that cannot be encoded as UTF-8."""
    return (
        f"column {name!r} holds text that is not valid Unicode, such as a file name of bytes that "
        "are not UTF-8, and cannot be written: drop the column, or derive bytes from it with "
        "os.fsencode"
    )


class SilvaError(Exception):
    """The base class of all errors that silva raises."""

    def __str__(self) -> str:
        return printable(super().__str__())


class PlanError(SilvaError, ValueError):
    """A pipeline cannot be built as written: a column, function or argument is wrong."""


class SourceError(SilvaError, OSError):
    """A source cannot be listed or read: no file matches, a file is truncated or has changed."""

    wrong_answer = False
    """Whether a method of a user's source returned what it must not. That is never a row's failure:
    it ends the stream whatever `on_error` is."""


def is_wrong_answer(error: BaseException) -> bool:
    """Whether the error says that a source returned what it must not."""
    return isinstance(error, SourceError) and error.wrong_answer


class ColumnError(SilvaError, ValueError):
    """Rows do not fit into one column or batch, such as images of different sizes."""


class RowError(SilvaError):
    """A step failed on a row. `key` names the row, and `__cause__` is the user's exception."""

    def __init__(self, message: str, *, key: str = "", step: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.step = step


class RequestError(SilvaError, ValueError):
    """What is wrong with a request, raised by a function of a pipeline that answers requests. Its
    text is shown to the client; that of any other exception goes to the server's log."""


class StepError(SilvaError, RuntimeError):
    """A step failed, but not on a particular row: a `@stateful` class cannot be built, or a
    `@batched` function fails on a block but on none of its rows."""


class FailureBudgetExceeded(SilvaError):
    """More rows failed than `Skip(at_most=…, rate=…)` allows."""


class StateError(SilvaError, ValueError):
    """A state does not belong to this pipeline, these shards or this number of ranks."""


class WorkerError(SilvaError, RuntimeError):
    """A worker process cannot be started, or workers died repeatedly on the same rows."""


class DeadlineError(SilvaError, TimeoutError):
    """A step did not finish within the deadline; the message shows every stack."""


class PicklingError(SilvaError, TypeError):
    """A function cannot be sent to a worker process; the message names the variable."""


class FolderError(SilvaError, OSError):
    """A folder cannot be written: its disk is full, or it contains a link that leads elsewhere."""


class LoaderError(SilvaError, RuntimeError):
    """A loader is used in a way that it does not support, such as two loops at once."""


class ServiceError(SilvaError, ConnectionError):
    """A service cannot be reached, refuses this reader, or has failed."""


class TableError(SilvaError, ValueError):
    """A table cannot be read or changed as requested: another schema, a duplicate key, a version
    that was collected."""
