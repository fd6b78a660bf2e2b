"""Hostile files and sources: odd names, deep nesting, types that do not agree."""

from __future__ import annotations

import json
import os
import random
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv
from silva.testing import assert_same_stream

NEVER = "Never hangs, never shortens an epoch, never drops a row silently"

ODD = os.fsdecode(b"caf\xe9")
"""A name in Latin-1: its bytes are no UTF-8, and Python holds one as a lone surrogate."""


def _parquet(path: Path, **columns) -> None:
    path.write_bytes(b"")
    with path.open("wb") as file:
        pq.write_table(pa.table(columns), file)


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A folder of an odd name, with a file of an odd name for each format."""
    monkeypatch.chdir(tmp_path)
    folder = Path(ODD)
    folder.mkdir()
    (folder / f"{ODD}.txt").write_bytes(b"one\ntwo\n")
    (folder / f"{ODD}.jsonl").write_bytes(b'{"x": 1}\n{"x": 2}\n')
    (folder / f"{ODD}.csv").write_bytes(b"x\n1\n2\n")
    _parquet(folder / f"{ODD}.parquet", x=[1, 2])
    table = pa.table({"x": [1, 2]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / f"{ODD}.arrow").write_bytes(sink.getvalue())
    with (folder / f"{ODD}.npy").open("wb") as file:
        np.save(file, np.arange(2))
    with (
        (folder / f"{ODD}.tar").open("wb") as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for name in ("a.txt", "b.txt"):
            archive.addfile(tarfile.TarInfo(name))
    return folder


READERS = {
    "txt": sv.read_lines,
    "jsonl": sv.read_json,
    "csv": sv.read_csv,
    "parquet": sv.read_parquet,
    "arrow": sv.read_arrow,
    "npy": sv.read_npy,
    "tar": sv.read_tar,
    "": sv.read_files,
}


@pytest.mark.attacks("Exact resume")
@pytest.mark.parametrize("kind", READERS)
def test_files_of_odd_names_are_read_resumed_cached_and_shown(odd, kind):
    path = odd / f"{ODD}.{kind}" if kind else odd
    batches = READERS[kind](path).batch(1)
    with batches.loader(backend="inline", workers=0) as loader:
        next(iter(loader))
        state = json.dumps(loader.state_dict(), ensure_ascii=False).encode()
    with batches.loader(backend="inline", workers=0) as again:
        again.load_state_dict(json.loads(state))
        assert len(list(again)) == (6 if kind == "" else 1)
    for shown in (repr(batches), str(batches.explain()), batches._repr_html_()):
        shown.encode()
    cached = READERS[kind](path).cache("kept")
    counts = [sum(1 for _ in cached.loader(backend="inline", workers=0)) for _ in range(2)]
    assert counts == [7, 7] if kind == "" else [2, 2]


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize("kind", [k for k in READERS if k not in ("", "txt")])
def test_an_error_about_a_file_of_an_odd_name_can_be_printed(odd, kind):
    (odd / f"{ODD}.{kind}").write_bytes(b"\x00garbage garbage")
    with pytest.raises(sv.SilvaError) as caught:
        list(READERS[kind](odd / f"{ODD}.{kind}"))
    assert b"caf\\udce9" in str(caught.value).encode()


@pytest.mark.attacks(NEVER)
def test_failures_that_name_odd_files_are_written_down(odd):
    rows = sv.read_files(odd).derive(n=lambda path: int(path))
    policy = sv.Skip(at_most=99)
    loader = rows.loader(on_error=policy, failures="failed.jsonl", backend="inline", workers=0)
    assert list(loader) == []
    records = [json.loads(line) for line in Path("failed.jsonl").read_text("utf-8").splitlines()]
    assert len(records) == 7
    assert all("invalid literal" in record["error"] for record in records)
    with pytest.raises(sv.RowError) as caught:
        list(rows)
    str(caught.value).encode()


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize("verb", ["to_parquet", "to_tar", "to_table"])
def test_text_without_utf8_is_refused_by_name(odd, verb):
    with pytest.raises(sv.ColumnError, match=r"'path'.*not valid Unicode"):
        getattr(sv.read_files(odd).select("path"), verb)("out", workers=0)


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize("verb", ["to_parquet", "to_tar"])
def test_a_sink_writes_into_a_folder_of_an_odd_name(odd, verb):
    written = getattr(sv.from_columns({"x": range(3)}), verb)(odd / "out", workers=0)
    assert written.rows == 3


DEEP = {
    "lists": lambda depth: '{"x": ' + "[" * depth + "]" * depth + "}",
    "objects": lambda depth: '{"x": ' * depth + "1" + "}" * depth,
}


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize("depth", [3_000, 100_000])
@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("columns", [None, ["x"]], ids=["all", "chosen"])
def test_json_nested_too_deeply_is_told_by_file_and_place(tmp_path, kind, depth, columns):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"x": 1}\n' + DEEP[kind](depth) + "\n")
    with pytest.raises(sv.SourceError, match=r"deep\.jsonl: the line at byte 9 .* nested too deep"):
        list(sv.read_json(path, columns=columns))


@pytest.mark.attacks(NEVER)
def test_lists_that_can_be_read_but_not_batched_are_told_by_column(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text(DEEP["lists"](700) + "\n")
    rows = sv.read_json(path)
    assert rows.count() == 1
    with pytest.raises(sv.ColumnError, match=r"column 'x'.*nested too deeply"):
        list(rows.batch(1).loader(backend="inline", workers=0))
    with pytest.raises(sv.ColumnError, match=r"column 'x'.*nested too deeply"):
        list(rows.cache(tmp_path / "kept").loader(backend="inline", workers=0))
    with pytest.raises(sv.ColumnError, match=r"column 'x'.*nested too deeply"):
        rows.to_parquet(tmp_path / "out", workers=0)


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (pa.array([1, 2]), pa.array(["a", "b"]), "string.*int64.*'a'|string.*int64.*'b'"),
        (pa.array([1], pa.int32()), pa.array([2**60]), "int64.*int32.*not in range"),
        (pa.array([1]), pa.array([[1]]), "list.*cannot be cast to int64"),
    ],
    ids=["text", "range", "list"],
)
def test_parquet_files_of_two_types_are_told_apart_from_damaged_ones(tmp_path, first, second, told):
    _parquet(tmp_path / "a.parquet", x=first)
    _parquet(tmp_path / "b.parquet", x=second)
    with pytest.raises(
        sv.SourceError, match=rf"b\.parquet: column 'x' is .*{told}.*a\.parquet"
    ) as e:
        list(sv.read_parquet([tmp_path / "a.parquet", tmp_path / "b.parquet"]))
    assert "truncated" not in str(e.value)


def _mixed_sources(seed: int) -> sv.Pipeline:
    """Rows of one column from sources that hold it in different ways."""
    rng = random.Random(seed)
    lists = [[1, 2], [3, 4], [5, 6], [], [7]]
    made = [
        sv.from_items([{"x": row} for row in lists]),
        sv.from_items([{"x": np.array(row, np.float32)} for row in lists]),
        sv.from_arrow(pa.table({"x": pa.array([*lists, None], pa.list_(pa.int32()))})),
        sv.from_arrow(pa.table({"x": pa.array(lists, pa.list_(pa.float32()))})),
        sv.from_arrow(
            pa.table({"x": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))})
        ),
        sv.from_items([{"x": (1,)}, {"x": None}, {"x": [1.5, None]}]),
    ]
    chosen = rng.sample(made, rng.randint(2, 4))
    return sv.concat(chosen) if rng.random() < 0.5 else sv.mix(chosen, seed=seed)


@pytest.mark.attacks("One stream")
@pytest.mark.parametrize("seed", range(6))
def test_types_of_a_batch_do_not_depend_on_other_sources(seed):
    rows = _mixed_sources(seed).derive(n=sv.list("x").length(), short=sv.list("x").truncate(1))
    batches = rows.batch(random.Random(seed).randint(1, 4))
    assert_same_stream(batches, backends=("inline",), fresh_process=False, epochs=1)


@pytest.mark.attacks("One stream")
def test_a_list_of_a_file_stays_a_list_beside_lists_of_python():
    """Two lists of a file have one length by chance, and are Ragged whatever comes after them."""
    table = pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32()))})
    both = sv.concat([sv.from_arrow(table), sv.from_items([{"x": [5]}, {"x": [6]}])])
    for pipeline in (both, both.derive(y=lambda x: x).select("x")):
        first = pipeline.batch(2).head(1)[0]["x"]
        assert isinstance(first, sv.Ragged)
        assert first.values.dtype == np.float32
