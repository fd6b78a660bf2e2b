"""Every argument of the public verbs and of the loader, given odd values: it works, or silva says
what is wrong with it. No exception is a raw one out of silva's own code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv

ODD: dict[str, Any] = {
    "None": None,
    "no text": "",
    "text": "q",
    "bytes": b"x",
    "-1": -1,
    "True": True,
    "2**70": 2**70,
    "0.5": 0.5,
    "nan": float("nan"),
    "no list": [],
    "nested": [[["x"]]],
    "no dict": {},
    "dict": {1: 2},
    "object": object(),
    "function": len,
    "array": np.array([1, 2]),
    "surrogate": "\ud800",
    "nul": "a\0b",
}

ROWS = sv.from_columns({"x": [1, 2, 3], "t": [[1], [2, 3], []], "s": ["a", "b", "c"]})
OTHER = {"s": ["a", "b"], "x": [1, 2], "price": [3.0, 4.0]}
STATE = ROWS.batch(2).loader(backend="inline").state_dict()


def latest_get(**arguments: Any) -> Any:
    return sv.Latest(sv.from_columns(OTHER), by="s", on="x").get(**arguments)


def set_epoch(epoch: Any) -> Any:
    ROWS.loader(backend="inline").set_epoch(epoch)


VERBS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "derive": (ROWS.derive, {"into": "z", "reads": "x"}),
    "rename": (ROWS.rename, {"x": "z"}),
    "map_rows": (ROWS.map_rows, {"function": dict, "into": ["z"]}),
    "join": (ROWS.join, {"other": OTHER, "on": "s", "how": "left", "columns": "price"}),
    "asof_join": (
        ROWS.asof_join,
        {
            "features": {"s": ["a"], "x": [1], "z": [1]},
            "by": "s",
            "on": "x",
            "ttl": 5,
            "lag": 1,
            "available": None,
            "columns": "z",
        },
    ),
    "filter": (ROWS.filter, {"condition": lambda x: x > 1, "reads": "x"}),
    "explode": (ROWS.explode, {"column": "t"}),
    "take": (ROWS.take, {"count": 2}),
    "skip": (ROWS.skip, {"count": 2}),
    "shuffle": (
        ROWS.shuffle,
        {"seed": 1, "kind": "window", "window": 2, "by": None, "max_per_group": None},
    ),
    "sample": (ROWS.sample, {"weights": "x", "size": 2, "seed": 1}),
    "sample balanced": (ROWS.sample, {"balance": "x", "size": 2, "seed": 1}),
    "split": (ROWS.split, {"by": "x", "salt": 1, "part": 0.5}),
    "batch": (
        ROWS.batch,
        {"size": 2, "drop_last": False, "pad": None, "collate": None, "grouped": "x"},
    ),
    "batch of a rank": (ROWS.batch, {"per_rank": 2}),
    "batch of tokens": (ROWS.batch, {"tokens": 2, "by": "t", "axis": 0}),
    "pack": (
        ROWS.pack,
        {"column": "t", "length": 4, "window": 2, "pad": 0, "overflow": "split"},
    ),
    "bucket": (
        ROWS.bucket,
        {"by": "t", "sizes": {9: 2}, "axis": 0, "drop_last": True, "pad": 0},
    ),
    "cache": (ROWS.cache, {"folder": "rows", "shared": False, "limit": "1MiB"}),
    "options": (
        ROWS.options,
        {"optimize": True, "disable": [], "shards": 2, "seed": 1, "fidelity": "close"},
    ),
    "head": (ROWS.head, {"count": 1}),
    "row": (ROWS.row, {"key": "0:1", "epoch": 0}),
    "check_leaks": (ROWS.check_leaks, {"time": "x", "known": "x", "times": 2, "seed": 1}),
    "to_parquet": (
        ROWS.to_parquet,
        {
            "folder": "parquet",
            "shard_rows": 2,
            "shard_bytes": "1MiB",
            "schema": None,
            "compression": "zstd",
        },
    ),
    "to_tar": (
        ROWS.select("s").to_tar,
        {"folder": "tar", "key": None, "shard_rows": 2, "shard_bytes": "1MiB"},
    ),
    "loader": (
        ROWS.batch(2).loader,
        {
            "workers": 0,
            "backend": "inline",
            "memory": "1GiB",
            "on_error": "raise",
            "failures": "failures.jsonl",
            "seed": 1,
            "rank": 0,
            "world": 1,
            "epochs": 1,
            "cache": "auto",
            "steps": 1,
            "eval": False,
            "group": None,
            "ordered": True,
            "progress": False,
            "deadline": 60.0,
            "cluster": None,
            "cpus": None,
        },
    ),
    "concat": (sv.concat, {"pipelines": [ROWS]}),
    "zip": (sv.zip, {"pipelines": [ROWS], "stop": "shortest"}),
    "mix": (
        sv.mix,
        {"pipelines": [ROWS, ROWS], "weights": [1, 2], "seed": 1, "stop": "first"},
    ),
    "Skip": (sv.Skip, {"at_most": 1, "rate": 0.5}),
    "col": (sv.col, {"name": "x"}),
    "is_in": (sv.col("x").is_in, {"values": [1]}),
    "cast": (sv.col("x").cast, {"dtype": "int8"}),
    "set_epoch": (set_epoch, {"epoch": 1}),
    "merge_states": (sv.merge_states, {"states": [STATE]}),
    "reshard": (sv.reshard, {"state": STATE, "shards": 2, "plan": ROWS.batch(2)}),
    "read_table": (
        sv.read_table,
        {"table": "table", "version": None, "branch": "main", "columns": None},
    ),
    "read_files": (sv.read_files, {"paths": "*.jpg"}),
    "from_torch": (sv.from_torch, {"dataset": [(1, 2)], "columns": ("x", "y")}),
    "from_columns": (sv.from_columns, {"columns": {"x": [1]}}),
    "from_items": (sv.from_items, {"items": [{"x": 1}]}),
    "from_arrow": (sv.from_arrow, {"data": ROWS.batch(2).loader(backend="inline").to_arrow()}),
    "Latest.get": (latest_get, {"keys": ["a"], "at": 1}),
}  # fmt: skip
POSITIONAL = {"derive": (lambda x: x,)}


@pytest.mark.parametrize("verb", ["shuffle", "pack", "bucket", "options", "loader", "cache"])
def test_no_argument_is_left_out(verb: str) -> None:
    call = sv.LoaderOptions if verb == "loader" else VERBS[verb][0]
    named = inspect.signature(call).parameters.values()
    there = {p.name for p in named if p.kind is not p.VAR_KEYWORD} - {"self", "plan"}
    assert there <= set(VERBS[verb][1])


@pytest.mark.parametrize("verb", VERBS)
def test_an_odd_argument_works_or_is_an_error_of_silvas(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, right = VERBS[verb]
    raw = []
    for name in right:
        for number, (told, odd) in enumerate(ODD.items()):
            folder = tmp_path / name / str(number)
            folder.mkdir(parents=True)
            monkeypatch.chdir(folder)
            try:
                made = call(*POSITIONAL.get(verb, ()), **{**right, name: odd})
                if isinstance(made, sv.Pipeline):
                    made = made.loader(backend="inline")
                if isinstance(made, sv.Loader):
                    with made:
                        next(iter(made), None)
            except sv.SilvaError:
                pass
            except Exception as error:  # noqa: BLE001  the ones that are looked for
                raw.append(f"{verb}({name}={told}): {type(error).__name__}: {error!s:.90}")
    assert not raw, "\n".join(raw)


NEVER = {
    "a name of a part that is no name": lambda: ROWS.split(**{"0": 0.5}),
    "select(array)": lambda: ROWS.select(np.array(["x"])),
    "pack(length=2**70)": lambda: ROWS.pack("t", 2**70),
    "pack(length=2**31 + 1)": lambda: ROWS.pack("t", 2**31 + 1),
    "from_torch(dict)": lambda: sv.from_torch({"x": 1}),
    "is_in(text)": lambda: sv.col("x").is_in("abc"),
    "weights of text": lambda: ROWS.sample("s").head(1),
    "weights of lists": lambda: ROWS.sample("t").head(1),
    "weights that are missing": lambda: sv.from_columns({"w": [1, None]}).sample("w").head(1),
    "balance of what has no order": lambda: (
        sv.from_columns({"w": [1, "a", None]}).sample(balance="w").head(1)
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_no_verb_can_follow_is_a_plan_error(case: str) -> None:
    with pytest.raises(sv.PlanError):
        NEVER[case]()


BEYOND = {
    "to_parquet of huge numbers": lambda p: ROWS.derive(x=lambda x: 2**70).to_parquet(p),
    "to_parquet of empty dicts": lambda p: ROWS.derive(x=lambda x: {}).to_parquet(p),
    "to_tar of no Unicode": lambda p: (
        ROWS.derive(x=lambda s: "\ud800" + s).select("x", "s").to_tar(p, key="x")
    ),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_a_column_cannot_hold_is_an_error_that_names_it(case: str, tmp_path: Path) -> None:
    with pytest.raises(sv.ColumnError, match="'x'"):
        BEYOND[case](tmp_path / "out")


def test_rows_with_missing_items_are_grouped_by_what_is_missing() -> None:
    items = [[1, 999999], np.ma.array([1, 999999], mask=[0, 1]), np.ma.masked, np.ma.masked]
    rows = sv.from_columns({"x": range(4)}).derive(q=sv.impure(lambda x: items[x]))
    seen = rows.derive(q=sv.impure(lambda q: np.ma.array(q))).batch(4, grouped="q").head(1)[0]["q"]
    assert seen.inverse.tolist() == [0, 1, 2, 2]
