"""Columns that are given: values from outside, without a function that computes them.

They are stored like derived columns, in a part of each fragment under a fingerprint, which is the
hash of the values. Fragments without values have no part, so rows that are appended later change
nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from silva.columns import Column, Values, from_arrow, to_arrow
from silva.columns.values import as_numpy
from silva.errors import PlanError, TableError, no_unicode
from silva.facts.formatting import plural
from silva.io.arrays.memory import as_column
from silva.operators.join.keys import Keys
from silva.plan.fingerprint import digest
from silva.store.append.data_writer import DataWriter, compute_bounds
from silva.store.append.normal_form import as_normal, check_held, is_untyped, normal_type
from silva.store.derived.definitions import (
    BASE,
    Definition,
    Given,
    add_definition,
    current,
    with_definitions,
)
from silva.store.derived.materialize import New, with_new
from silva.store.derived.present import Present
from silva.store.derived.table_source import TableSource
from silva.store.versions import commits
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder


def put_column(
    folder: Folder, branch: str, at: Version, name: str, values: Any, keys: Any, default: Any
) -> None:
    """Stores values for rows of the version `at`, on top of the newest version of the branch. With
    keys, the other rows keep the values that they have there."""
    _check_name(folder, at, name)
    source = TableSource.of(folder, at)
    array = given_values(name, values)
    own = folder.schema(at.schema).key
    count = len(array)
    places = _in_order(source, count) if keys is None else _by_key(source, own, keys, count)
    typed = any(hasattr(values, n) for n in ("dtype", "__arrow_c_array__", "__arrow_c_stream__"))
    if keys is not None and not count and not typed and default is None:
        return  # nothing changes, and nothing says which type a new column would have
    while True:  # until nothing else changes the column in between
        over = None if keys is None else folder.head(branch)
        with contextlib.suppress(_Overtaken):
            return _put(folder, branch, source, name, array, places, default, over)


class _Overtaken(TableError):
    """The column was made or changed since its values were read."""


def _put(
    folder: Folder,
    branch: str,
    source: TableSource,
    name: str,
    array: Any,
    places: np.ndarray,
    default: Any,
    over: Version | None,
) -> None:
    """Puts the values once. With keys, the other rows keep what they have in the version `over`."""
    present = None if over is None else Present.of(folder, over, name)
    if present is not None:
        array = present.with_new(name, array)
    if present is not None and default is None:
        rest = present.default.cast(array.type)
    else:
        rest = _default_row(name, default, array.type)
    pieces, given, kept = _pieces(source, array, places, rest, present)
    held = [(fragment, _contents(piece)) for fragment, piece in pieces.items()]
    fingerprint = digest((str(array.type), _contents(rest), held))
    shown = "null" if rest.null_count else f"{rest.to_pylist()[0]!r:.40}"
    also = f", {kept:,} kept" if kept else ""
    text = f"{array.type} for {plural(given, 'row')}{also}; others are {shown}"
    definition = Definition(name, (), (), text, given=Given(_as_bytes(rest)))
    with DataWriter(folder) as writer:
        new = _write_parts(writer, pieces, fingerprint)
        with writer.committing():
            change = _with_values(folder, name, fingerprint, definition, new)
            if over is not None:
                change = _unless_overtaken(folder, name, over, present, rest, change)
            commits.commit(folder, branch, change)


def _check_name(folder: Folder, version: Version, name: str) -> None:
    if not isinstance(name, str) or not name:
        raise PlanError(f"put: the name of a column must be a non-empty string, not {name!r}")
    if current(folder, version).get(name, "").startswith(BASE):
        raise PlanError(
            f"put: {name!r} is an appended column, which cannot be changed: put the values under "
            "another name"
        )


def _in_order(source: TableSource, count: int) -> np.ndarray:
    if count != source.length():
        raise TableError(
            f"put: {plural(count, 'value')} for the {plural(source.length(), 'row')} of "
            f"{source.describe()}. Give one for each row, in the order of read(), and the version "
            "that was read with at=…; or with keys=… the keys of their rows"
        )
    return np.arange(count)


def _by_key(source: TableSource, names: tuple[str, ...], keys: Any, count: int) -> np.ndarray:
    """For each row of the table, the number of its value; -1 where it has none."""
    asked = _key_columns(source, names, keys, count)
    known, codes = Keys.of(names, asked)
    if (codes < 0).any():
        raise TableError(
            f"put: a key is null ({_shown(names, asked, int(np.argmin(codes)))}); leave it out"
        )
    rows = np.full(len(known), -1, dtype=np.int64)
    rows[codes] = np.arange(count)
    if len(twice := np.flatnonzero(rows[codes] != np.arange(count))):
        raise TableError(f"put: the key {_shown(names, asked, int(twice[0]))} is given twice")
    places = np.full(source.length(), -1, dtype=np.int64)
    for start, end in zip(source.starts[:-1], source.starts[1:], strict=True):
        found = known.find(list(source.read(np.arange(start, end), names).values()))
        places[start:end] = np.where(found >= 0, rows[found], -1) if count else -1
    strangers = np.setdiff1d(np.arange(count), places)
    if len(strangers):
        more = f" (and {len(strangers) - 1:,} more)" if len(strangers) > 1 else ""
        raise TableError(
            f"put: there is no row with the key {_shown(names, asked, int(strangers[0]))}{more} "
            f"in {source.describe()}"
        )
    return places


def _key_columns(
    source: TableSource, names: tuple[str, ...], keys: Any, count: int
) -> list[Column]:
    if not names:
        raise TableError(
            f"put: {source.describe()} has no key (see sv.Table.create(path, data, key=…)). Give "
            "one value for each row instead, in the order of read()"
        )
    if hasattr(keys, "column_names"):  # an Arrow table
        keys = {name: keys[name] for name in keys.column_names}
    if not isinstance(keys, Mapping):
        keys = {names[0]: keys}
    if set(keys) != set(names):
        raise TableError(
            f"put: keys=… has the columns {', '.join(keys)}, but the table's key is {names}"
        )
    found = [from_arrow(_as_arrow(name, keys[name])) for name in names]
    for column in found:
        if len(column) != count:
            raise TableError(f"put: {plural(len(column), 'key')} for {plural(count, 'value')}")
    return found


def _shown(names: tuple[str, ...], columns: list[Column], row: int) -> str:
    pairs = zip(names, columns, strict=True)
    return ", ".join(f"{name}={c.slice(row, row + 1).rows()[0]!r}" for name, c in pairs)


def _pieces(
    source: TableSource, array: Any, places: np.ndarray, rest: Any, present: Present | None
) -> tuple[dict[str, Any], int, int]:
    """The values of each fragment that has any, one per row of its files, with `rest` for rows
    without; the number of rows that are given one, and of those that keep theirs."""
    import pyarrow as pa

    new = pa.concat_arrays([array, rest])
    there = np.append(from_arrow(array.is_valid()).batch(), False)
    without = len(array)
    chosen: dict[str, np.ndarray] = {}
    for number, fragment in enumerate(source.fragments):
        rows = np.arange(source.starts[number], source.starts[number + 1])
        own = chosen[fragment.id] = np.full(fragment.rows, -1, dtype=np.int64)
        own[source.within(number, rows)] = places[rows]
    pieces: dict[str, Any] = {}
    given = kept = 0
    for fragment in source.fragments if present is None else present.fragments:
        own = chosen.get(fragment.id, np.full(fragment.rows, -1, dtype=np.int64))
        wanted = np.where(there[own], own, without)
        given += int(there[own].sum())
        values = new
        old = None if present is None else present.values(fragment, array.type, rest)
        if old is not None:
            keeps = (own < 0) & from_arrow(old.is_valid()).batch()
            wanted = np.where(keeps, without + 1 + np.arange(fragment.rows), wanted)
            values = pa.concat_arrays([new, old])
            kept += int(keeps.sum())
        if (wanted != without).any():
            pieces[fragment.id] = values.take(pa.array(wanted))
    return pieces, given, kept


def _write_parts(writer: DataWriter, pieces: Mapping[str, Any], fingerprint: str) -> New:
    import pyarrow as pa

    new: New = {}
    for fragment, piece in pieces.items():
        table = pa.table({fingerprint: piece})
        new[fragment] = {fingerprint: (writer.part(table), compute_bounds(table))}
    return new


def _with_values(
    folder: Folder,
    name: str,
    fingerprint: str,
    definition: Definition,
    new: New,
) -> commits.Change:
    """The commit that adds the values to the fragments that the branch still has."""

    def change(head: Version) -> Version | None:
        _check_name(folder, head, name)
        changed = with_new(folder.all_fragments(head), new)
        if not changed and current(folder, head).get(name) == fingerprint:
            return None
        add_definition(folder, fingerprint, definition)
        definitions = with_definitions(folder, head.definitions, ((name, fingerprint),))
        what = f"put {name}"
        made = commits.replace_fragments(folder, head, changed, what) or head
        return msgspec.structs.replace(made, definitions=definitions, what=what)

    return change


def _unless_overtaken(
    folder: Folder,
    name: str,
    over: Version,
    present: Present | None,
    rest: Any,
    change: commits.Change,
) -> commits.Change:
    """The change, if the column is still what it was in the version `over`, whose values the rows
    without a new value keep."""
    before = current(folder, over).get(name)

    def checked(head: Version) -> Version | None:
        same = current(folder, head).get(name) == before
        if not same or (present is not None and present.misses(folder.all_fragments(head), rest)):
            raise _Overtaken(f"put: {name!r} was changed meanwhile")
        return change(head)

    return checked


def given_values(name: str, values: Any) -> Any:
    """The values as an Arrow array of a type that a table holds."""
    import pyarrow as pa

    array = pa.chunked_array([_as_arrow(name, values)])
    kind = normal_type(array.type)
    check_held(name, kind)
    if pa.types.is_struct(kind):
        fields = ", ".join(repr(f"{name}.{field.name}") for field in kind)
        raise PlanError(
            f"put: {name!r} has rows of several fields, which are columns of their own in a table: "
            f"put each by itself, as {fields}"
        )
    if pa.types.is_null(kind):
        kind = pa.float64()
    elif is_untyped(kind):
        raise PlanError(
            f"put: all lists of {name!r} are empty, so their type is unknown: give one, e.g. by "
            "pa.array(values, pa.list_(pa.float32()))"
        )
    return as_normal(array, kind).combine_chunks()


def _as_arrow(name: str, values: Any) -> Any:
    import pyarrow as pa

    try:
        if hasattr(values, "__arrow_c_stream__"):
            found = pa.chunked_array(values)
            return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
        if hasattr(values, "__arrow_c_array__"):
            return pa.array(values)
        column = as_column(name, values, "put")
        if isinstance(column, Values):
            column = Values([as_numpy(item) for item in column.items]).settled()
        if isinstance(column, Values):
            return pa.array([_nested(item) for item in column.items])
        return to_arrow(column)
    except UnicodeError:
        raise PlanError(f"put: {no_unicode(name)}") from None
    except pa.ArrowNotImplementedError as error:
        raise PlanError(
            f"put: the values of {name!r} have a type that Arrow lacks ({error}): cast them to "
            "another, or put their parts as columns"
        ) from error
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise PlanError(f"put: the values of {name!r} do not have one type: {error}") from error


def _nested(item: Any) -> Any:
    """A value as Arrow takes it: arrays of several dimensions as lists of arrays, which keep their
    type."""
    if isinstance(item, np.ndarray):
        return [_nested(row) for row in item] if item.ndim > 1 else item[()]
    return item


def _default_row(name: str, default: Any, kind: Any) -> Any:
    """One row with the value of rows that are given none."""
    import pyarrow as pa

    try:
        return pa.array([default.tolist() if hasattr(default, "tolist") else default], kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise PlanError(
            f"put: default={default!r:.80} is not a value of the type {kind}: {error}"
        ) from error


def _as_bytes(value: Any) -> bytes:
    """A row in Arrow's IPC format."""
    import pyarrow as pa

    batch = pa.record_batch([value], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _contents(piece: Any) -> tuple[Any, ...]:
    """The values in a form to hash, without the bytes that Arrow holds in place of nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, piece.type
    there = piece.is_valid().cast(pa.uint8()).to_numpy()
    dense = piece.drop_null()
    if types.is_struct(kind):
        return there, [_contents(field) for field in dense.flatten()]
    if types.is_fixed_size_list(kind):
        return there, _contents(dense.flatten())
    if types.is_list(kind):
        return there, pc.list_value_length(dense).to_numpy(), _contents(dense.flatten())
    if types.is_string(kind) or types.is_binary(kind):
        joined = b"".join(dense.cast(pa.binary()).to_pylist())
        return there, pc.binary_length(dense).to_numpy(), joined
    if types.is_map(kind):
        return there, dense.to_pylist()
    if types.is_boolean(kind):
        dense = dense.cast(pa.uint8())
    width, data = dense.type.byte_width, dense.buffers()[1]
    return there, bytes(data.slice(dense.offset * width, len(dense) * width)) if data else b""
