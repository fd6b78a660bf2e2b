"""The claims of the store; a new one is a function, and its name here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.claims import Finding
from benchmarks.store.history import as_of_join
from benchmarks.store.labels import label
from benchmarks.store.reading import bytes_read, preprocessing, transform_rows
from benchmarks.store.setting import Sizes
from benchmarks.store.sizes import list_bytes, table_bytes
from benchmarks.store.throughput import scanning
from benchmarks.store.training import (
    equality,
    training,
    training_on_two_threads,
    training_on_two_threads_asleep,
)
from benchmarks.store.writers import concurrent_appends, concurrent_columns

CLAIMS: dict[str, Callable[[Sizes], Iterator[Finding]]] = {
    f.__name__: f
    for f in (
        list_bytes,
        table_bytes,
        label,
        bytes_read,
        scanning,
        transform_rows,
        preprocessing,
        training,
        training_on_two_threads,
        training_on_two_threads_asleep,
        equality,
        concurrent_appends,
        concurrent_columns,
        as_of_join,
    )
}
_LONG = ("training", "training_on_two_threads", "training_on_two_threads_asleep")
"""Left out of a quick run: training takes minutes to be told from noise."""
SHORT = tuple(name for name in CLAIMS if name not in _LONG)
