"""Disks that are full: an error that names the file and says what to do, and nothing half-written.

A file system of a megabyte or so is mounted for a script that writes to it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEGIN = """
import os, sys
from pathlib import Path
import numpy as np
import silva as sv

disk = Path(sys.argv[1])
values = [np.random.default_rng(i).bytes(4000) for i in range(1000)]
texts = sv.from_columns({"key": [f"{i:04d}" for i in range(1000)], "bin": values})


def told(work):
    try:
        work()
    except sv.FolderError as error:
        assert isinstance(error, OSError) and error.errno == 28, error
        print("told:", error)
    else:
        print("nothing was told")


def fill():
    \"\"\"Leaves no room at all.\"\"\"
    try:
        with open(disk / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
"""


def on_small_disk(folder: Path, script: str, size: str = "1m") -> list[str]:
    """The lines that a script prints which gets a small file system of its own."""
    disk, file = folder / "disk", folder / "script.py"
    disk.mkdir()
    file.write_text(BEGIN + textwrap.dedent(script))
    within = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size={size} none '{disk}'"
    if shutil.which("unshare") is None or subprocess.run([*within, mount], check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    command = f"{mount} && exec '{sys.executable}' '{file}' '{disk}'"
    done = subprocess.run([*within, command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("format", ["parquet", "tar"])
def test_a_sink_says_that_the_disk_is_full_and_goes_on_when_there_is_room(
    tmp_path: Path, format: str
) -> None:
    verb = {"parquet": "to_parquet", "tar": "to_tar"}[format]
    key = ', key="key"' if format == "tar" else ""
    said = on_small_disk(
        tmp_path,
        f"""
        def write(rows):
            return rows.{verb}(disk / "out", shard_rows=100{key}, backend="inline")

        (disk / "filler").write_bytes(bytes(300_000))
        told(lambda: write(texts.take(200)))
        print(sorted(p.name for p in (disk / "out").iterdir()))
        (disk / "filler").unlink()
        print(write(texts.take(200)).rows)
        """,
    )
    assert said[0].startswith(f"told: '{tmp_path / 'disk' / 'out'}' cannot be written: its disk is")
    assert "run it again" in said[0]
    assert said[1] == str(["_silva.json", "_silva.lock", f"part-00000.{format}"])
    assert said[2] == "200"


def test_a_table_on_a_full_disk_is_as_it_was(tmp_path: Path) -> None:
    said = on_small_disk(
        tmp_path,
        """
        import pyarrow as pa

        noise = lambda x: np.random.default_rng(x).bytes(4000)
        more = texts.derive(x=lambda key: 200 + int(key), v=sv.col("bin")).select("x", "v")
        t = sv.Table.create(disk / "t", pa.table({"x": range(200), "v": [b"x"] * 200}), key="x")
        t.derive(noise=noise)
        before = t.version, set((disk / "t").rglob("*"))
        for work in (
            lambda: t.append(pa.table({"x": range(200, 600), "v": values[:400]})),
            lambda: t.put("w", values[:200]),
            lambda: t.materialize("noise"),
            lambda: more.to_table(disk / "t", backend="inline"),
        ):
            told(work)
            there = {p for p in (disk / "t").rglob("*") if not {"writing", "audit"} & {*p.parts}}
            print(t.version == before[0], there == before[1], len(t.read(["x", "v"]).head(300)))
        """,
        "600k",
    )
    assert len(said) == 8
    for told, after in zip(said[::2], said[1::2], strict=True):
        assert told.startswith(f"told: '{tmp_path / 'disk' / 't'}")
        assert "its disk is full. The table is unchanged" in told
        assert after == "True True 200"


def test_a_commit_on_a_full_disk_is_none(tmp_path: Path) -> None:
    said = on_small_disk(
        tmp_path,
        """
        import pyarrow as pa

        t = sv.Table.create(disk / "t", pa.table({"x": range(200)}))
        before = t.version
        fill()
        told(lambda: t.derive(y=sv.col("x") * 2))
        told(lambda: t.tag("a"))
        told(lambda: t.delete(sv.col("x") == 2))
        print(t.version == before, t.rows, list(t.read().head(2)))
        (disk / "filler").unlink()
        print(t.delete(sv.col("x") == 2).rows)
        """,
    )
    assert all(line.startswith("told: ") and "its disk is full" in line for line in said[:3])
    assert said[3:] == ["True 200 [{'x': 0}, {'x': 1}]", "199"]


def test_a_failures_file_on_a_full_disk_is_told_and_has_whole_lines(tmp_path: Path) -> None:
    said = on_small_disk(
        tmp_path,
        """
        import json

        def bad(x):
            raise ValueError("x" * 3000)

        rows = sv.from_columns({"x": range(1000)}).derive(y=bad).batch(10)

        def read():
            with rows.loader(backend="inline", on_error=sv.Skip(), failures=disk / "f.jsonl") as l:
                list(l)

        told(read)
        print({len(json.loads(line)) for line in (disk / "f.jsonl").read_text().splitlines()})
        """,
    )
    assert said[0].startswith(f"told: '{tmp_path / 'disk' / 'f.jsonl'}' cannot be written: its")
    assert said[1] == "{4}"


def test_a_cache_on_a_full_disk_keeps_no_rows_and_is_no_error(tmp_path: Path) -> None:
    said = on_small_disk(
        tmp_path,
        """
        fill()
        rows = texts.derive(n=lambda bin: len(bin)).cache(disk / "rows").batch(100)
        with rows.loader(backend="inline") as loader:
            print(sum(int(n) for batch in loader for n in batch["n"]))
            print(sum(int(n) for batch in loader for n in batch["n"]))
        print(sorted(p.name for p in disk.rglob("*.tmp")))
        """,
    )
    assert said == ["4000000", "4000000", "[]"]
