"""Explanations: the same text every time, narrow, and with measurements once there are any."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv

CHAIN = (
    sv.image("bytes").decode().random_resized_crop(64).random_flip()
    .normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).to_chw()
)  # fmt: skip


def double(x):
    return x * 2


def run_part(text: str) -> list[str]:
    return text.split("Plan as run\n")[1].splitlines()


def test_the_three_parts_of_an_explanation() -> None:
    rows = sv.from_columns({"x": range(10)}).derive(y=double, unread=double).select("y")
    text = rows.shuffle(seed=3).batch(4).explain()
    line = double.__code__.co_firstlineno
    assert (
        text
        == f"""\
Plan as written
  batch 4
  shuffle seed=3, kind=auto, window=4096
  select y
  derive unread = double(x)  [test_explain.py:{line}]
  derive y = double(x)  [test_explain.py:{line}]
  source columns of 10 rows

Rules
  drop_unread: nothing reads the columns that these steps write
    · unread
  shuffle_early: a shuffle costs nothing at the source, and steps around it can be planned together
    · shuffle seed=3, kind=auto, window=4096

Plan as run
  batch 4
  stage 1: its backend is chosen once its first rows are measured
    · read x
    · y = double(x)  [test_explain.py:{line}]
  feed columns of 10 rows: global shuffle (seed 3)"""
    )


def test_branches_are_drawn_as_a_tree() -> None:
    a = sv.from_columns({"x": range(3)})
    b = sv.from_columns({"x": range(5)}).shuffle(seed=1).take(2)
    lines = run_part(sv.mix([a, b], weights=[2, 1], seed=7).explain())
    mix = next(i for i, line in enumerate(lines) if line.startswith("  mix"))
    assert lines[mix:] == [
        "  mix weights=[2.0, 1.0], seed=7, stop=all",
        "  ├─ stage 1: its backend is chosen once its first rows are measured",
        "  │    · read x",
        "  │  feed columns of 3 rows: in order",
        "  └─ stage 2: its backend is chosen once its first rows are measured",
        "       · read x",
        "     feed columns of 5 rows: global shuffle (seed 1), the first 2 rows",
    ]


def test_the_shuffle_that_results_is_named(tmp_path) -> None:
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet", row_group_size=10)
    chunked = sv.read_parquet(str(tmp_path / "a.parquet"))
    two_level = chunked.shuffle(seed=2, window=32).explain()
    assert "two-level shuffle: rows within windows of 32 (seed 2)" in two_level
    shown = " ".join(two_level.split())  # a long path may have broken the line
    assert "100 rows, read in units, units in permuted order (seed 2)" in shown
    window = chunked.shuffle(seed=2, window=32, kind="window").explain()
    assert "window shuffle: rows within windows of 32 (seed 2)" in window
    assert "read in units, in order" in " ".join(window.split())
    indexed = sv.from_columns({"x": range(9)}).shuffle(seed=2, window=4, kind="window").explain()
    assert "shuffle within windows of 4 rows (seed 2)" in indexed
    drawn = sv.from_columns({"x": range(2)}).sample(weights=[1, 1], size=7, seed=2).explain()
    assert "7 weighted draws (seed 2)" in drawn


def test_no_line_is_wider_than_a_page() -> None:
    branch = sv.from_columns({"bytes": [b""], "x": [1]}).derive(image=CHAIN).select("image", "x")
    nested = sv.concat([sv.mix([branch, branch]), branch])
    text = nested.filter(lambda x: x > 0).batch(2).explain()
    assert max(map(len, text.splitlines())) <= 100
    assert ".random_flip()" in text  # its arguments have their default values


SHOWN = (
    (
        sv.image("a").decode().resize(8, 8).random_crop(4).random_flip().grayscale(),
        (".resize(height=8, width=8)", ".random_crop(height=4, width=4)", ".random_flip()"),
    ),
    (sv.image("a").decode().resize(8, 8, interpolation="area"), ("interpolation='area'",)),
    (
        sv.list("c").truncate(3).pad(4).hash(10),
        ("c.truncate(n=3)", ".pad(length=4)", ".hash(buckets=10)"),
    ),
    (sv.list("c").truncate(2, side="left"), ("c.truncate(n=2, side='left')",)),
)
"""Expressions, and how explanations show their operators."""


def test_arguments_that_have_their_default_values_are_not_repeated() -> None:
    photo = io.BytesIO()
    PIL.Image.new("RGB", (16, 16)).save(photo, "png")
    rows = sv.from_columns({"a": [photo.getvalue()] * 8, "c": [[1]] * 8})
    rows = rows.derive(**{f"y{n}": chain for n, (chain, _) in enumerate(SHOWN)})
    with rows.select("y0", "y1", "y2", "y3").batch(2).loader(backend="inline") as loader:
        texts = [loader.explain()]
        list(loader)
        texts += [loader.explain(), loader.explain(analyze=True)]
    for text in texts:
        for _, shown in SHOWN:
            for call in shown:
                assert text.count(call) >= 2, f"{call}, in the plan as written and as run"
        for default in ("bilinear", "probability=", "channels=", "side='right'", "seed=0"):
            assert default not in text


def test_an_explanation_without_a_run_is_the_same_every_time() -> None:
    rows = sv.from_columns({"x": range(10)}).derive(y=double).batch(2)
    assert rows.explain() == rows.explain() == rows.loader(workers=7).explain()


def test_measurements_appear_after_a_run() -> None:
    rows = sv.from_columns({"x": range(300)}).derive(y=double).filter(sv.col("x") % 3 == 0)
    loader = rows.batch(10).loader(backend="inline")
    assert "stage 1 inline: as asked for" in loader.explain()
    list(loader)
    text = loader.explain()
    assert "300 rows in, 100 out" in text
    assert "rows/s per worker" in text
    assert sum("%" in line and ("█" in line or "░" in line) for line in text.splitlines()) == 3


def test_explain_does_not_switch_the_check_for_equal_steps_off() -> None:
    loader = (
        sv.from_columns({"x": range(9)}).filter(lambda x: True).batch(2).loader(rank=0, world=2)
    )
    loader.explain()
    with pytest.raises(sv.PlanError, match="steps="):
        next(iter(loader))


def test_stats_count_rows_and_the_seconds_of_each_step() -> None:
    rows = sv.from_columns({"x": np.arange(100)}).derive(y=double).filter(sv.col("x") < 50)
    loader = rows.batch(10).loader(backend="threads", workers=2)
    list(loader)
    (stats,) = loader.stats().values()
    assert (stats["backend"], stats["workers"], stats["reason"]) == ("threads", 2, "as asked for")
    assert (stats["rows_in"], stats["rows_out"]) == (100, 50)
    assert stats["bytes_out"] > 0
    assert stats["blocks"] >= 1
    assert next(iter(stats["steps"])) == "read x"
    assert 0 < sum(stats["steps"].values()) <= stats["busy"]
    assert stats["rows_per_second_busy"] > 0
    loader.close()


def test_the_steps_of_batches_are_listed_too() -> None:
    rows = sv.from_columns({"x": range(8)}).batch(4).derive(total=lambda x: x.sum())
    loader = rows.loader(workers=0)
    list(loader)
    (label,) = loader.stats()["stage 2"]["steps"]
    assert label.startswith("derive total = lambda(x)")
    assert loader.stats()["stage 2"]["reason"] == "no workers were requested"


def test_a_shuffle_that_tears_groups_apart_is_named(tmp_path) -> None:
    log = sv.from_columns({"session": [1, 1, 2], "hist": [[5], [5], [7]]})
    table = sv.Table.create(tmp_path / "log", log, group="session").read()
    told = "so that grouped= has little to share"
    assert told in str(table.shuffle(seed=0).batch(2, grouped="hist").explain())
    whole = table.shuffle(seed=0, by="session")
    for kept in (whole.batch(2, grouped="hist"), table.batch(2, grouped="hist")):
        assert told not in str(kept.explain())
    assert told not in str(table.shuffle(seed=0).batch(2).explain())
    assert told not in str(table.shuffle(kind="window").batch(2, grouped="hist").explain())
