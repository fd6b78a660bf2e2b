"""The claims of the store; a new one is a function, and its name here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.claims import Finding
from benchmarks.store.reading import bytes_read, preprocessing, transform_rows
from benchmarks.store.setting import Sizes
from benchmarks.store.sizes import list_bytes, table_bytes
from benchmarks.store.training import (
    equality,
    training,
    training_on_two_threads,
    training_on_two_threads_asleep,
)

CLAIMS: dict[str, Callable[[Sizes], Iterator[Finding]]] = {
    f.__name__: f
    for f in (
        list_bytes,
        table_bytes,
        bytes_read,
        transform_rows,
        preprocessing,
        training,
        training_on_two_threads,
        training_on_two_threads_asleep,
        equality,
    )
}
SHORT = ("list_bytes", "table_bytes", "bytes_read", "transform_rows", "preprocessing", "equality")
"""Those of a quick run: training takes minutes to be told from noise."""
