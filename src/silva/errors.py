"""Every error that silva raises on purpose, written for the person who wrote the pipeline."""

from __future__ import annotations


class SilvaError(Exception):
    """The base of all errors that silva raises on purpose."""


class PlanError(SilvaError, ValueError):
    """The pipeline as written cannot be built: a wrong column, function or argument."""


class SourceError(SilvaError, OSError):
    """A source cannot be listed or read: nothing matches, a file is truncated or has changed."""


class ColumnError(SilvaError, ValueError):
    """Rows cannot be put into one column or batch, e.g. images of different sizes."""


class RowError(SilvaError):
    """A step failed on a row; carries the row's key, and the user's exception as its cause."""

    def __init__(self, message: str, *, key: str = "", step: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.step = step


class FailureBudgetExceeded(SilvaError):
    """More rows failed than `Skip(at_most=…, rate=…)` allows."""


class StateError(SilvaError, ValueError):
    """A state does not belong to this pipeline, these shards or this number of ranks."""


class WorkerError(SilvaError, RuntimeError):
    """A worker process could not be started, or died again and again on the same rows."""


class DeadlineError(SilvaError, TimeoutError):
    """A step did not finish within the deadline; the message holds every stack."""


class PicklingError(SilvaError, TypeError):
    """A function cannot travel to a worker process; the message names the variable."""


class LoaderError(SilvaError, RuntimeError):
    """A loader is used in a way that it does not support, e.g. two live iterators."""


class ServiceError(SilvaError, ConnectionError):
    """A service cannot be reached, or does not let this reader in, or failed itself."""


class TableError(SilvaError, ValueError):
    """A table cannot be read or changed as asked: another schema, a duplicate key, a version that
    was collected."""
