"""Verbs that write a pipeline to Parquet files, tar files, a table or an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from silva.cost.machine import parse_bytes
from silva.errors import PlanError
from silva.folders import OwnFolder
from silva.plan.arguments import name_of
from silva.plan.node import Node
from silva.plan.schema import columns, verify

if TYPE_CHECKING:
    from silva.options import WriteArguments
    from silva.serve.index.index import Index
    from silva.serve.models.model import Model
    from silva.sinks.write import Limits, ShardWriter, Written
    from silva.store.table import Table


class WriteVerbs:
    """The verbs of `Pipeline` that write it to storage."""

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
        **arguments: Unpack[WriteArguments],
    ) -> Written:
        """Writes one epoch to a folder of Parquet files.

        A file has at most `shard_rows` rows, or about `shard_bytes` of decoded data. If the program
        is killed, run it again: it continues after the last complete file. A finished folder is
        left unchanged. Pass an Arrow `schema` if the first rows do not determine the types.
        `arguments` are those of `loader`.

        >>> import silva as sv, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = sv.from_columns({"x": range(5)}).to_parquet(folder, shard_rows=2)
        ...     done.shards, sv.read_parquet(folder).count()
        (('part-00000.parquet', 'part-00001.parquet', 'part-00002.parquet'), 5)
        """
        from silva.sinks.parquet import ParquetWriter

        place = _folder(folder)
        writer = ParquetWriter(place, schema, compression)
        return _write(self.plan, place, writer, shard_rows, shard_bytes, arguments)

    def to_tar(
        self,
        folder: str | Path,
        *,
        key: str | None = None,
        shard_rows: int | None = None,
        shard_bytes: int | str = "256MiB",
        **arguments: Unpack[WriteArguments],
    ) -> Written:
        """Writes one epoch to a folder of tar files in the layout of WebDataset.

        Each row becomes members named `key.column`, of bytes or text. `key` is the column that
        holds the keys: by default the column `key`, or else rows are numbered. The other arguments
        are those of `to_parquet`.

        >>> import silva as sv, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = sv.from_columns({"key": ["a", "b"], "txt": ["x", "y"]}).to_tar(folder)
        ...     sv.read_tar(folder).head(1)
        [{'key': 'a', 'txt': b'x'}]
        """
        from silva.sinks.tar import TarWriter

        there = columns(self.plan)
        if key is not None and name_of("to_tar(key=…)", key) not in there:
            raise PlanError(f"to_tar(key=…): there is no column {key!r}")
        key = "key" if key is None and "key" in there else key
        if not set(there) - {key}:
            raise PlanError("to_tar needs a column besides the keys to write")
        place = _folder(folder)
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
        **arguments: Unpack[WriteArguments],
    ) -> Table:
        """Appends one epoch to a table, or to a `branch` of it; creates the table if needed.

        `key`, `group`, `time` and `store` are those of `Table.create`. Each `shard_rows` rows, or
        about `shard_bytes`, are one append, sorted on its own. If the program is killed, run it
        again: it continues after the last append. A pipeline that is already in the table is not
        appended again. The other arguments are those of `to_parquet`.

        >>> import silva as sv, tempfile
        >>> numbers = sv.from_columns({"x": range(5)})
        >>> path = tempfile.mkdtemp() + "/numbers"
        >>> numbers.to_table(path, key="x", shard_rows=2)  # doctest: +ELLIPSIS
        table ...numbers (main 3: append 1 row; 5 rows)
        >>> numbers.to_table(path, shard_rows=2).rows
        5
        """
        from silva.store.append.normal_form import Roles
        from silva.store.sink import write_table

        limits = _limits(self.plan, shard_rows, shard_bytes, arguments)
        roles = Roles(key, group, time, store or {})
        return write_table(self.plan, path, branch, roles, limits, arguments)

    def to_index(
        self,
        path: str | Path,
        *,
        keyword: str | None = None,
        vector: str | None = None,
        id: str | None = None,
        text: str | None = None,
        embed: Model | None = None,
        recall: float | None = None,
        **arguments: Unpack[WriteArguments],
    ) -> Index:
        """Builds an index of the rows, as passages that can be searched, and opens it.

        `keyword` is the column whose words are indexed, `vector` the one with vectors. `id`, by
        default the column `id`, holds numbers or texts that name the passages; without one, rows
        are numbered. `text` is what hits show, by default the column `keyword`. All other columns
        are stored for `search(where=…)`. `embed` is the model that made the vectors; it need not be
        given where the pipeline derives them with `model.embed`.

        The search by vectors is exact, unless `recall=0.95` asks for an approximate one, which
        finds at least this share of the true neighbours. That is measured when the index is built,
        and refused where it cannot be shown with 95 % confidence.

        If the program is killed, run it again: it continues after the last 4,096 rows. An index
        that is there already gets a new version. `arguments` are those of `loader`.

        >>> import silva as sv, tempfile
        >>> passages = sv.from_columns({"id": ["a", "b"], "text": ["Red fox.", "Brown bear."]})
        >>> passages.to_index(tempfile.mkdtemp() + "/idx", keyword="text")  # doctest: +ELLIPSIS
        index of 2 rows (version 1) in ...idx
        """
        from silva.serve.index.index import build_index

        return build_index(
            self.plan, path, keyword=keyword, vector=vector, id=id, text=text, embed=embed,
            recall=recall, arguments=arguments,
        )  # fmt: skip


def _folder(folder: str | Path) -> OwnFolder:
    from silva.io.objects.addresses import local_folder

    return OwnFolder(local_folder(folder, "files that are written"))


def _write(
    plan: Node,
    folder: OwnFolder,
    writer: ShardWriter,
    rows: int | None,
    nbytes: int | str,
    arguments: WriteArguments,
) -> Written:
    from silva.sinks.write import write

    return write(plan, folder, writer, _limits(plan, rows, nbytes, arguments), arguments)


def _limits(plan: Node, rows: int | None, nbytes: int | str, arguments: WriteArguments) -> Limits:
    from silva.sinks.write import Limits

    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise PlanError(f"shard_rows is a whole number of at least 1, not {rows!r}")
    if unfit := sorted({"rank", "world", "epochs", "steps", "eval", "group"} & set(arguments)):
        raise PlanError(
            f"one process writes one epoch, so {unfit[0]}= does not apply: leave it out"
        )
    verify(plan)
    return Limits(rows, parse_bytes(nbytes))
