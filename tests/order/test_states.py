"""A state goes on with the rest of the stream: after every batch, under any plan and policy."""

from __future__ import annotations

import json
from itertools import chain

import pyarrow as pa
import pytest
from state_shapes import bucketed, fine, fragile, new_shapes, rows, shapes

import silva as sv
from silva.order.forms import cursor_form, has_windows
from silva.plan.expr import Literal
from silva.testing import cut_blocks, digest

POLICIES = {
    "raise": "raise",
    "skip": sv.Skip(at_most=100),
    "substitute": sv.Substitute(0),
}
NAMES = [*shapes(None), *new_shapes(None)]
every_shape = pytest.mark.parametrize("shape", NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def build(folder, shape: str, step=fine) -> sv.Pipeline:
    return {**shapes(folder, step), **new_shapes(folder, step)}[shape]()


def read(pipeline: sv.Pipeline, policy: str = "raise", state=None):
    """The digests of an epoch, the state before each batch and after the last one handed out, and
    the error that ended it."""
    loader = cut_blocks(pipeline.loader(backend="inline", on_error=POLICIES[policy]), (3, 1, 7))
    if state is not None:
        loader.load_state_dict(json.loads(state))
    found, states, error = [], [json.dumps(loader.state_dict())], None
    try:
        for batch in loader:
            found.append(digest(batch))
            states.append(json.dumps(loader.state_dict()))
    except sv.RowError as raised:
        error = raised
        assert json.dumps(loader.state_dict()) == states[-1], "after the last batch handed out"
    return found, states, error


@every_shape
@pytest.mark.parametrize("most", [5, pytest.param(100, marks=pytest.mark.rest)])
def test_a_state_goes_on_after_every_batch_optimised_or_not(folder, shape, most):
    pipeline = build(folder, shape)
    plain = pipeline.options(optimize=False)
    whole, states, _ = read(pipeline)
    written, others, _ = read(plain)
    assert written == whole
    for given, state in some(states, most):
        rest, after, _ = read(plain, state=state)
        assert rest == whole[given:], (given, state)
        assert json.loads(after[0])["cursors"] == json.loads(state)["cursors"]
    for given, state in some(others, most // 2):
        assert read(pipeline, state=state)[0] == whole[given:], (given, state)


@every_shape
@pytest.mark.parametrize("most", [2, pytest.param(100, marks=pytest.mark.rest)])
def test_a_state_goes_on_under_another_policy(folder, shape, most):
    """A job that died on a bad row goes on with `Skip`, and gives what `Skip` would have given."""
    pipeline = build(folder, shape, fragile)
    plain = pipeline.options(optimize=False)
    skipped, states, error = read(pipeline, "skip")
    assert error is None
    found, died, error = read(pipeline)
    assert found == skipped[: len(found)]
    if shape != "zip" and "cache twice" not in shape:
        assert error is not None
    for given, state in [*some(died, most), (len(died) - 1, died[-1])]:
        assert read(plain, "skip", state)[0] == skipped[given:], (given, state)
    for given, state in some(states, most):
        assert read(plain, "skip", state)[0] == skipped[given:], (given, state)
        rest, _, _ = read(pipeline, "raise", state)
        assert rest == skipped[given : given + len(rest)]
    substituted, states, _ = read(pipeline, "substitute")
    for given, state in some(states, most):
        assert read(plain, "substitute", state)[0] == substituted[given:], (given, state)
        if has_windows(cursor_form(pipeline.plan)) and '"failures": {"0": [0,' not in state:
            if given:
                with pytest.raises(sv.StateError, match="windows"):
                    read(pipeline, "skip", state)
            continue
        read(pipeline, "skip", state)
        read(pipeline, "raise", state)


def some(states: list[str], most: int) -> list[tuple[int, str]]:
    """So many of the states, evenly spread, each with the batches given before it."""
    numbers = sorted({i * (len(states) - 1) // most for i in range(1, most + 1)})
    return [(number, states[number]) for number in numbers]


@every_shape
def test_failures_are_counted_as_if_never_interrupted(folder, shape):
    """Whatever is resumed from where, the count at the end is that of one run."""
    if shape == "batches taken":
        pytest.skip("how far it reads beyond its last batch depends on the blocks")
    pipeline = build(folder, shape, fragile)
    _, states, _ = read(pipeline, "skip")
    counts = set()
    for _, state in [(0, states[0]), *some(states, 3)]:
        loader = cut_blocks(pipeline.loader(backend="inline", on_error=POLICIES["skip"]), (2, 5))
        loader.load_state_dict(json.loads(state))
        for _ in loader:
            pass
        counts.add(loader.facts().failed)
    assert len(counts) == 1, counts


def test_the_budget_of_skip_is_spent_across_a_change_of_policy():
    pipeline = rows(0, 100).derive(y=fragile).batch(4)
    _, died, error = read(pipeline)
    assert error is not None
    loader = pipeline.loader(backend="inline", on_error=sv.Skip(at_most=5))
    loader.load_state_dict(json.loads(died[-1]))
    with pytest.raises(sv.FailureBudgetExceeded):
        list(loader)
    _, states, _ = read(pipeline, "skip")
    raising = pipeline.loader(backend="inline")
    raising.load_state_dict(json.loads(states[10]))
    assert raising.state_dict()["failures"] == json.loads(states[10])["failures"]


def test_failures_in_pipelines_that_have_ended_stay_counted():
    first, second = rows(0, 40).derive(y=fragile), rows(100, 40).derive(y=fine)
    pipeline = sv.concat([first, second]).batch(4)
    _, states, _ = read(pipeline, "skip")
    assert json.loads(states[-1])["failures"]["0"][0] == 3
    repeating = sv.mix([rows(0, 8).derive(y=fragile), second], stop="repeat").batch(4)
    loader = repeating.loader(backend="inline", on_error=sv.Skip())
    for _ in loader:
        last = loader.state_dict()
    assert last["failures"]["0"][0] == len(loader.failures)


@pytest.mark.parametrize("shape", ["sharded", "mix, sharded"])
def test_a_state_is_resharded_under_skip(folder, shape):
    pipeline = build(folder, shape, fragile)
    options = {"backend": "inline", "on_error": sv.Skip(at_most=100)}
    world = 3 if shape == "sharded" else 2
    ranks = [pipeline.loader(rank=r, world=world, steps=9, **options) for r in range(world)]
    seen, states = [], []
    for loader in ranks:
        for step, batch in enumerate(loader):
            seen += batch["x"].tolist()
            if step == 2:
                break
        states.append(json.loads(json.dumps(loader.state_dict())))
    merged = sv.merge_states(states)
    failed = sum(count[0] for count in merged["failures"].values())
    dealt = json.loads(json.dumps(sv.reshard(merged, 6, pipeline)))
    assert sum(count[0] for count in dealt["failures"].values()) == failed
    loader = pipeline.loader(**options)
    loader.load_state_dict(dealt)
    for batch in loader:
        seen += batch["x"].tolist()
    everything = [x for batch in pipeline.loader(**options) for x in batch["x"].tolist()]
    assert sorted(seen) == sorted(everything)


def test_ranks_come_and_go_under_skip(folder):
    pipeline = rows(0, 120).derive(y=fragile).options(shards=6).batch(12, drop_last=True)
    options = {"backend": "inline", "on_error": sv.Skip(at_most=100), "steps": 9}
    whole = [batch["y"].tolist() for batch in pipeline.loader(**options)]
    state, found = None, []
    for world, until in ((2, 3), (3, 6), (1, 9)):
        parts, states = [], []
        for rank in range(world):
            loader = pipeline.loader(rank=rank, world=world, **options)
            if state is not None:
                loader.load_state_dict(state)
            parts.append([])
            for batch in loader:
                parts[-1].append(batch["y"].tolist())
                if len(parts[-1]) == 3:
                    break
            states.append(loader.state_dict())
        state = json.loads(json.dumps(sv.merge_states(states)))
        found += [list(chain(*step)) for step in zip(*parts, strict=True)]
        assert len(found) == until
    assert found == whole


def test_a_part_waits_of_a_row_that_is_the_first_of_its_unit(tmp_path):
    """The cursor names the end of the unit before it."""
    table = pa.table({"x": range(8)})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as f:
        f.write_table(table, max_chunksize=1)
    parts = sv.read_arrow(tmp_path / "x.arrow").derive(p=lambda x: [0, 1]).explode("p")
    lengths = parts.derive(q=lambda x, p: list(range((x + p) % 3)))
    others = sv.from_columns({"x": range(9)}).derive(p=-1).derive(q=lambda x: list(range(x % 3)))
    mixed = sv.mix([others, lengths.filter(lambda x: x > 1)], seed=2, stop="all")
    pipeline = mixed.bucket("q", {0: 2, 1: 3, 2: 5})
    loader = pipeline.loader(backend="inline")
    found = [(digest(batch), loader.state_dict()) for batch in loader]
    for step, (_, state) in enumerate(found[:-1], 1):
        resumed = pipeline.loader(backend="inline")
        resumed.load_state_dict(state)
        assert [digest(batch) for batch in resumed] == [batch for batch, _ in found[step:]]


def test_the_shards_of_a_bucket_take_turns_after_one_has_ended(folder):
    pipeline = build(folder, "bucket, sharded unevenly")
    whole, states, _ = read(pipeline)
    ended = [
        s for s in states if "ended" in {c["phase"] for c in json.loads(s)["cursors"].values()}
    ]
    assert ended, "one shard ends before the others"
    assert read(pipeline, state=ended[0])[0] == whole[states.index(ended[0]) :]


def test_a_waiting_row_is_drawn_in_its_own_pass():
    short = sv.mix([rows(0, 30), rows(1000, 5)], seed=5, stop="repeat").derive(y=fine)
    pipeline = bucketed(short)
    whole, states, _ = read(pipeline)
    passes = [
        mark[1]
        for state in states[1:]
        for marks in json.loads(state)["cursors"]["0"]["waiting"]
        for mark in marks
        if mark[0] == 1
    ]
    assert {0, 1} <= set(passes)
    for given, state in enumerate(states):
        assert read(pipeline, state=state)[0] == whole[given:]


def test_a_failure_deep_within_a_row_is_not_forgotten_by_a_resume():
    """Row 1, part 0, part 3 fails: a state within part 0 comes to it again."""

    def breaks(u):
        if u == 103:
            raise ValueError(u)
        return u

    twice = rows(0, 3).derive(t=lambda x: [x * 100, x * 100 + 50]).explode("t")
    twice = twice.derive(u=lambda t: [t + i for i in range(5)]).explode("u")
    pipeline = twice.derive(v=breaks).batch(1)
    found, states, error = read(pipeline)
    assert (len(found), error.key.split(":")[1]) == (13, "1")
    for given, state in enumerate(states):
        rest, _, again = read(pipeline, state=state)
        assert rest == found[given:]
        assert again is not None, "the row would be lost"
        assert again.key == error.key


def test_no_rule_changes_the_form_of_a_cursor(folder):
    @sv.batched(size=4)
    def unread(x):
        return x - x.min()

    always = sv.Expr(Literal(1)) < 2
    for pipeline in (
        rows().derive(z=unread).select("x").batch(4),
        rows().filter(always).batch(4),
        rows().filter(always).take(20).batch(4),
        rows().filter(always).skip(3).options(shards=2).batch(4),
    ):
        whole, states, _ = read(pipeline)
        plain = pipeline.options(optimize=False)
        assert read(plain)[0] == whole
        for given, state in some(states, 4):
            assert read(plain, state=state)[0] == whole[given:]


def test_a_rule_of_yours_that_would_change_cursors_is_not_used():
    from silva.plan import node as logical
    from silva.rewrite.rule import Rule
    from silva.rewrite.runner import OTHER_CURSORS, _Run

    plan = rows().filter(lambda x: x > 3).take(20).batch(4).plan

    def drops_filters(plan: logical.Node) -> sv.Rewrite:
        change = lambda node: node.input if isinstance(node, logical.Filter) else node  # noqa: E731
        return sv.Rewrite(logical.transform(plan, change), ("dropped",))

    run = _Run(plan, frozenset(), counts=False, substitutes=False)
    run.apply(Rule("drops_filters", drops_filters, "to see"))
    assert run.plan == plan
    assert run.outcomes["drops_filters"].why == OTHER_CURSORS


def test_a_pipeline_that_gives_nothing_in_its_first_pass_may_give_something_in_the_second():
    def passes(seed):
        """Of a mix with a pipeline of one row, which a filter keeps in some passes."""
        now_and_then = sv.from_columns({"x": [100]}).filter(lambda x, rng: rng.random() < 0.5)
        mixed = sv.mix([sv.from_columns({"x": range(9)}), now_and_then], stop="repeat")
        loader, found = mixed.loader(backend="inline", seed=seed), []
        rows = []
        for row in loader:
            rows.append(row["x"])
            found.append(json.loads(json.dumps(loader.state_dict())))
        for given, state in enumerate(found, start=1):
            again = mixed.loader(backend="inline", seed=seed)
            again.load_state_dict(state)
            assert [row["x"] for row in again] == rows[given:]
        return {(s["cursors"]["0"]["given"][1], s["cursors"]["0"]["passes"][1]) for s in found}

    assert any((1, 2) in passes(seed) for seed in range(20))


def test_a_pipeline_that_has_ended_leaves_its_share_to_one_without_a_weight():
    """Such counts are sound, though nobody would expect them of pipelines that all go on."""
    few = sv.from_columns({"x": [100, 101]}).filter(lambda x, rng: rng.random() < 0.4)
    mixed = sv.mix([few, rows(0, 12)], {0: [1, 0], 10: [1, 3]}, seed=1, stop="repeat")
    for seed in range(10):
        loader = mixed.loader(backend="inline", seed=seed)
        found, states = [], []
        for row in loader:
            found.append(row["x"])
            states.append(json.loads(json.dumps(loader.state_dict())))
        for given, state in enumerate(states, start=1):
            again = mixed.loader(backend="inline", seed=seed)
            again.load_state_dict(state)
            assert [row["x"] for row in again] == found[given:]


def test_counts_that_would_keep_a_mix_reading_one_pipeline_are_refused():
    mixed = sv.mix([rows(0, 3), rows(100, 12)], seed=1, stop="repeat")
    loader = mixed.loader(backend="inline")
    for _, _ in zip(range(8), loader, strict=False):
        state = json.loads(json.dumps(loader.state_dict()))
    cursor = state["cursors"]["0"]
    cursor["given"][1] = 10**6
    cursor["each"][0] = None  # as if a new pass were about to begin, which is not empty
    again = mixed.loader(backend="inline")
    again.load_state_dict(state)  # only reading shows that the pass is not empty
    with pytest.raises(sv.StateError, match="cannot have given so many rows"):
        list(again)


def test_the_error_for_a_long_step_shows_only_the_part_that_differs():
    def chain(size):
        photo = sv.image("x").decode().random_flip().color_jitter(0.4).center_crop((224, size))
        return sv.from_columns({"x": [b""]}).derive(y=photo.normalize(0.5, 0.5).to_chw()).batch(1)

    state = chain(224).loader().state_dict()
    with pytest.raises(sv.StateError) as error:
        chain(256).loader().load_state_dict(state)
    assert "had `…width=224…` and has `…width=256…`" in str(error.value)
    assert str(error.value).count("color_jitter") <= 1


def test_the_error_for_a_short_step_shows_both():
    rows = sv.from_columns({"x": range(4)})
    state = rows.take(3).batch(1).loader().state_dict()
    with pytest.raises(sv.StateError, match="step 1 was `take 3` and is `take 2`"):
        rows.take(2).batch(1).loader().load_state_dict(state)
