"""The verbs of a pipeline that write it to storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from silva.errors import PlanError
from silva.io.addresses import local_folder
from silva.plan.node import Node
from silva.plan.schema import columns
from silva.plan.verify import verify
from silva.profile.machine import parse_bytes

if TYPE_CHECKING:
    from silva.sinks.write import Limits, Written
    from silva.sinks.writer import Writer
    from silva.store.table import Table


class Writing:
    """A part of `Pipeline`."""

    __slots__ = ()

    plan: Node

    def to_parquet(
        self,
        folder: str | Path,
        *,
        shard_rows: int | None = None,
        shard_bytes: int | str = "256MiB",
        schema: Any = None,
        compression: str = "zstd",
        **arguments: Any,
    ) -> Written:
        """Writes one epoch as Parquet files of at most `shard_rows` rows, or about `shard_bytes` of
        decoded data. Killed and run again, it goes on where it was; a finished folder is left as it
        is. `arguments` are those of the loader; `schema` is Arrow's, where the first rows do not
        tell.

        >>> import silva as sv, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = sv.from_columns({"x": range(5)}).to_parquet(folder, shard_rows=2)
        ...     done.shards, sv.read_parquet(folder).count()
        (('part-00000.parquet', 'part-00001.parquet', 'part-00002.parquet'), 5)
        """
        from silva.sinks.parquet import ParquetWriter

        place = local_folder(folder, "files that are written")
        writer = ParquetWriter(place, schema, compression)
        return _write(self.plan, place, writer, shard_rows, shard_bytes, arguments)

    def to_tar(
        self,
        folder: str | Path,
        *,
        key: str | None = None,
        shard_rows: int | None = None,
        shard_bytes: int | str = "256MiB",
        **arguments: Any,
    ) -> Written:
        """Writes one epoch as tar files in WebDataset's layout, each row as members `key.column` of
        bytes or text. `key` is the column with the rows' names: the one called `key`, or their
        numbers. For the rest, see `to_parquet`.

        >>> import silva as sv, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = sv.from_columns({"key": ["a", "b"], "txt": ["x", "y"]}).to_tar(folder)
        ...     sv.read_tar(folder).head(1)
        [{'key': 'a', 'txt': b'x'}]
        """
        from silva.sinks.tar import TarWriter

        there = columns(self.plan)
        if key is not None and key not in there:
            raise PlanError(f"to_tar: there is no column {key!r}")
        key = "key" if key is None and "key" in there else key
        if not set(there) - {key}:
            raise PlanError("to_tar: there is nothing but keys to write")
        place = local_folder(folder, "files that are written")
        writer = TarWriter(place, key)
        return _write(self.plan, place, writer, shard_rows, shard_bytes, arguments)

    def to_table(
        self,
        path: str | Path,
        *,
        branch: str = "main",
        key: str | Sequence[str] = (),
        group: str | None = None,
        time: str | None = None,
        store: Mapping[str, Literal["plain", "grouped", "slices"]] | None = None,
        shard_rows: int | None = None,
        shard_bytes: int | str = "256MiB",
        **arguments: Any,
    ) -> Table:
        """Appends one epoch to a table, which is made if it is not there, or to another `branch` of
        it; `key`, `group`, `time` and `store` are those of `Table.create`. Each shard is one
        append, sorted by itself. Killed and run again, it goes on where it was; a pipeline that is
        in the table is not appended again. For the rest, see `to_parquet`.

        >>> import silva as sv, tempfile
        >>> numbers = sv.from_columns({"x": range(5)})
        >>> path = tempfile.mkdtemp() + "/numbers"
        >>> numbers.to_table(path, key="x", shard_rows=2)  # doctest: +ELLIPSIS
        table ...numbers (main 3: append 1 row; 5 rows)
        >>> numbers.to_table(path, shard_rows=2).rows
        5
        """
        from silva.store.sink import write_table

        limits = _limits(self.plan, shard_rows, shard_bytes, arguments)
        roles = (key, group, time, store or {})
        return write_table(self.plan, path, branch, *roles, limits, arguments)


def _write(
    plan: Node,
    folder: Path,
    writer: Writer,
    rows: int | None,
    nbytes: int | str,
    arguments: dict[str, Any],
) -> Written:
    from silva.sinks.write import write

    return write(plan, folder, writer, _limits(plan, rows, nbytes, arguments), arguments)


def _limits(plan: Node, rows: int | None, nbytes: int | str, arguments: dict[str, Any]) -> Limits:
    from silva.sinks.write import Limits

    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise PlanError(f"shard_rows is a whole number from 1 up, not {rows!r}")
    if unfit := sorted({"rank", "world", "epochs", "steps", "eval", "group"} & set(arguments)):
        raise PlanError(f"one process writes one epoch: leave out {unfit[0]}=")
    verify(plan)
    return Limits(rows, parse_bytes(nbytes))
