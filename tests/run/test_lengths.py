"""What `bucket` and `batch(tokens=…)` take for the length of a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import silva as sv
from silva.testing import assert_same_stream


def mel(n):
    return np.zeros((80, n), np.float32)


SPEECH = sv.from_columns({"n": [3, 9, 4, 10, 2, 8]}).derive(mel=mel)


def test_buckets_go_by_the_axis_that_is_named():
    batches = list(SPEECH.bucket("mel", {4: 3, 10: 3}, axis=-1, pad=0))
    assert [batch["n"].tolist() for batch in batches] == [[3, 4, 2], [9, 10, 8]]
    assert [batch["mel"].shape for batch in batches] == [(3, 80, 4), (3, 80, 10)]


def test_a_budget_of_tokens_goes_by_the_axis_that_is_named():
    batches = list(SPEECH.batch(tokens=20, by="mel", axis=1, pad=0))
    assert [batch["n"].tolist() for batch in batches] == [[3, 9], [4, 10], [2, 8]]
    assert_same_stream(
        SPEECH.batch(tokens=20, by="mel", axis=1, pad=0), backends=("inline",), fresh_process=False
    )


@pytest.mark.parametrize("verb", ["bucket", "batch"])
def test_a_row_of_several_dimensions_needs_an_axis(verb):
    if verb == "bucket":
        batches = SPEECH.bucket("mel", {100: 2}, pad=0)
    else:
        batches = SPEECH.batch(tokens=100, by="mel", pad=0)
    with pytest.raises(sv.ColumnError, match=r"shape \(80, 3\).*axis=-1"):
        list(batches)


def test_an_axis_that_a_row_does_not_have_is_named():
    with pytest.raises(sv.ColumnError, match="no axis 2"):
        list(SPEECH.bucket("mel", {100: 2}, axis=2, pad=0))


@pytest.mark.parametrize("row", [1.5, None, {"a": 1}, True])
def test_a_row_without_a_length_is_named(row):
    with pytest.raises(sv.ColumnError, match="row 0:1 of column"):
        list(sv.from_items([{"t": [1]}, {"t": row}]).bucket("t", {4: 2}))


def test_what_has_one_dimension_needs_no_axis():
    table = pa.table({"t": [[1], [2, 3]], "s": ["a", "bcd"], "n": [7, 1]})
    rows = sv.from_arrow(table).derive(u=lambda t: t, v=lambda s: list(s))
    for name, sizes in (("t", [1, 2]), ("s", [1, 3]), ("n", [1, 7]), ("u", [1, 2]), ("v", [1, 3])):
        made = rows.bucket(name, dict.fromkeys(sizes, 1)).head(2)
        assert len(made) == 2, name


def test_pipelines_without_an_axis_keep_their_fingerprints():
    """As silva 0.1 gave them: states and caches stay valid."""
    rows = sv.from_columns({"x": range(5), "t": [[1], [2, 3], [], [4], [5]]})
    bucketed = rows.bucket("t", {2: 2, 4: 1}, pad=-1)
    assert bucketed.fingerprint == "f94746e3e844c2a1f076543e1b31a5fc"
    by_tokens = rows.batch(tokens=8, by="t", pad=0)
    assert by_tokens.fingerprint == "af08ed0b3b2acf352247d05bca34df14"
    assert rows.bucket("t", {2: 2, 4: 1}, pad=-1, axis=0).fingerprint != bucketed.fingerprint


LISTS = sv.from_items([{"t": [i] * (i % 9 + 1)} for i in range(240)])


@pytest.mark.parametrize("shards", [3, 12])
def test_buckets_that_shards_cannot_share_equally_are_refused_as_batches_are(shards):
    for pipeline in (LISTS.bucket("t", {4: 6, 16: 4}, pad=0), LISTS.batch(4, pad=0)):
        with pytest.raises(sv.PlanError, match=f"shared equally by {shards} shards"):
            list(pipeline.options(shards=shards).loader(backend="inline"))
    with pytest.raises(sv.PlanError, match="shared equally by 4 shards"):
        list(LISTS.bucket("t", {16: 6}, pad=0).loader(rank=0, world=4, steps=3))


def test_a_state_of_shards_that_do_not_divide_a_bucket_is_refused():
    pipeline = LISTS.bucket("t", {4: 4, 16: 2}, pad=0)
    state = pipeline.options(shards=2).loader(backend="inline").state_dict()
    with pytest.raises(sv.StateError, match="a batch has 2 rows"):
        pipeline.loader().load_state_dict({**state, "shards": 4}, allow_changed=True)


def test_a_batch_of_a_bucket_is_the_share_of_one_shard_whoever_reads_it():
    pipeline = LISTS.bucket("t", {4: 8, 16: 4}, drop_last=True, pad=0).options(shards=4)
    alone = [batch["t"] for batch in pipeline.loader(backend="inline")]
    assert {(len(t), t.shape[1] <= 4) for t in alone} == {(2, True), (1, False)}
    ranks = [
        batch["t"].tolist()
        for rank in range(2)
        for batch in pipeline.loader(backend="inline", rank=rank, world=2, steps=40)
    ]
    assert all(batch in [t.tolist() for t in alone] for batch in ranks)


def test_a_row_beyond_the_budget_of_tokens_stands_alone():
    rows = sv.from_items([{"t": [1] * n} for n in (3, 50, 3)])
    shapes = [batch["t"].shape for batch in rows.batch(tokens=10, by="t", pad=0)]
    assert shapes == [(1, 3), (1, 50), (1, 3)]
