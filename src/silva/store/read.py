"""`sv.read_table`: a version of a table as a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from silva.pipeline import Pipeline
from silva.store.find import Which
from silva.store.folder import Paths
from silva.store.table import Table


def read_table(
    table: Paths | Table,
    version: Which | None = None,
    branch: str = "main",
    columns: Sequence[str] | None = None,
) -> Pipeline:
    """The rows of a table, as it is now or at a version (a number, a tag or a time).

    Any row costs the same, so that a shuffle is global; only the columns that are used are read,
    and fragments that cannot hold a row that a filter wants are passed over.

    >>> import silva as sv, pyarrow as pa, tempfile
    >>> path = tempfile.mkdtemp() + "/clicks"
    >>> t = sv.Table.create(path, pa.table({"user": [1, 2], "dwell": [40, 5]}))
    >>> sv.read_table(path, columns=["dwell"]).filter(sv.col("dwell") > 30).head(5)
    [{'dwell': 40}]
    """
    found = table if isinstance(table, Table) else Table.open(table, branch)
    return (found if version is None else found.at(version)).read(columns)
