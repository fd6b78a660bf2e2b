"""The runner: what is asked, what is used, what is said about it, and what users add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import silva as sv
from silva.plan.expr import Call, Col, walk
from silva.plan.fingerprint import fingerprint
from silva.plan.node import Derive, Filter, transform
from silva.plan.show import show_plan
from silva.rewrite import runner
from silva.rewrite.rule import RuleBatch
from silva.rewrite.runner import batches, optimize
from silva.testing import assert_same_stream

rows = sv.from_columns({"x": np.arange(20), "line": ["a  b"] * 20})
photo = sv.from_columns({"bytes": [b""]}).derive(
    image=sv.image("bytes").decode().to_float().normalize(0.5, 0.2).flip().flip()
)


def by_name(pipeline: sv.Pipeline, **how) -> dict[str, runner.Outcome]:
    return {outcome.rule.name: outcome for outcome in optimize(pipeline.plan, **how)[1]}


def test_rules_come_in_named_batches_and_laws_run_until_nothing_changes():
    sv.laws()
    found = {batch.name: batch for batch in batches()}
    names = ["columns", "filters", "functions", "merge", "laws", "yours", "share", "last laws"]
    assert list(found) == names
    assert found["filters"].repeat > 1
    assert isinstance(found["laws"], RuleBatch)
    assert found["laws"].repeat > 1
    assert {"flip_twice", "clip_twice"} <= {rule.name for rule in found["laws"].rules}


def test_a_law_is_used_and_said_and_can_be_switched_off_alone():
    outcomes = by_name(photo)
    assert outcomes["normalize_of_float"].applied
    assert outcomes["normalize_of_float"].numeric
    assert outcomes["normalize_of_float"].seconds > 0
    assert outcomes["flip_twice"].applied
    plan = optimize(photo.options(disable=["flip_twice"]).plan)[0]
    assert "flip(direction='horizontal').flip" in show_plan(plan)
    assert "to_float" not in show_plan(plan)
    off = by_name(photo.options(disable=["flip_twice"]))["flip_twice"]
    assert not off.applied
    assert off.why == runner.DISABLED


def test_rules_can_be_left_out_to_find_the_one_to_blame():
    plan, outcomes = optimize(photo.plan, without=frozenset({"normalize_of_float"}))
    assert "to_float" in show_plan(plan)
    assert {o.rule.name: o.why for o in outcomes}["normalize_of_float"] == runner.LEFT_OUT


def test_rewrites_by_columns_alone_are_not_numeric():
    pipeline = rows.derive(a=sv.col("x") + 1).derive(b=sv.col("a") * 2).select("b")
    assert not by_name(pipeline)["merge_derives"].numeric


def test_close_laws_wait_to_be_asked_for_and_false_ones_are_refused():
    pipeline = sv.from_columns({"bytes": [b""]}).derive(
        gray=sv.image("bytes").decode().grayscale(),
        late=sv.image("bytes").decode().color_jitter(hue=0.1).grayscale(),
    )
    outcomes = by_name(pipeline)
    assert not outcomes["gray_decode"].applied
    assert outcomes["gray_decode"].why == runner.NEEDS_CLOSE
    refused = outcomes["grayscale_before_jitter"]
    assert not refused.applied
    assert refused.why is not None
    assert refused.why.startswith("refused: ")
    close = by_name(pipeline.options(fidelity="close"))
    assert close["gray_decode"].applied
    assert not close["grayscale_before_jitter"].applied


def test_an_unknown_name_is_told():
    with pytest.raises(sv.PlanError, match=r"called 'nope'.*drop_unread.*flip_twice"):
        optimize(rows.options(disable=["nope"]).plan)


def test_a_plan_as_written_keeps_its_identity_and_its_look():
    before = fingerprint(photo.plan)
    random = sv.image("bytes").decode().random_flip()
    pipeline = sv.from_columns({"bytes": [b""]}).derive(image=random)
    plan, outcomes = optimize(pipeline.plan)
    assert outcomes == []
    assert show_plan(plan) == show_plan(pipeline.plan)
    calls = [t for t in walk(plan.step) if isinstance(t, Call)]  # type: ignore[attr-defined]
    assert [call.draw for call in calls] == [None, (pipeline.plan.id, 2)]  # type: ignore[attr-defined]
    assert fingerprint(photo.plan) == before


def test_one_random_expression_used_twice_is_one_value():
    flipped = sv.num("x").clip(0) + 0
    image = sv.image("i").random_flip()
    both = image.to_float() + image.to_float()
    data = np.arange(20 * 4 * 4 * 3, dtype=np.uint8).reshape(20, 4, 4, 3)
    pipeline = sv.from_columns({"i": list(data), "x": np.arange(20)})
    pipeline = pipeline.derive(sum=both, one=image.to_float(), f=flipped).batch(5)
    batch = pipeline.head(1)[0]
    flips = data[:5, :, ::-1]
    for i in range(5):
        plain, mirrored = (2 * (x[i] / np.float32(255)) for x in (data, flips))
        assert np.array_equal(batch["sum"][i], plain) or np.array_equal(batch["sum"][i], mirrored)
    assert_same_stream(pipeline, backends=("inline", "processes"), workers=(2,))


def negative_twice(call: Call):
    inner = call.args[0]
    twice = call.op == "negative" and isinstance(inner, Call) and inner.op == "negative"
    return inner.args[0] if twice else None


@pytest.mark.usefixtures("forget_rules")
def test_users_add_laws_of_their_own():
    sv.register_law(sv.Law("negative_twice", "-(-x) = x", negative_twice, "exact", "none known"))
    x = sv.col("x")
    for _ in range(4):
        x = -x
    pipeline = rows.derive(y=x).select("y")
    plan, outcomes = optimize(pipeline.plan)
    assert "derive y = x" in show_plan(plan).splitlines()
    assert [o.rule.name for o in outcomes] == ["negative_twice"]
    assert optimize(pipeline.options(disable=["negative_twice"]).plan)[0].input == pipeline.plan  # type: ignore[attr-defined]
    with pytest.raises(sv.PlanError, match="already registered"):
        sv.register_law(sv.Law("negative_twice", "", lambda call: None, "exact", ""))


def test_laws_are_well_formed():
    with pytest.raises(sv.PlanError, match="'exact', 'close' or 'never'"):
        sv.Law("a", "", negative_twice, "maybe", "")  # type: ignore[arg-type]
    with pytest.raises(sv.PlanError, match="bound= belongs to a close law"):
        sv.Law("a", "", negative_twice, "close", "")
    with pytest.raises(sv.PlanError, match="name is a word"):
        sv.Law("a b", "", negative_twice, "exact", "")


@pytest.mark.usefixtures("forget_rules")
def test_users_add_rules_of_their_own():
    def apply(plan):
        def change(node):
            near = isinstance(node, Derive) and node.into == ("n",)
            return replace(node, step=Col("x")) if near else node

        return sv.Rewrite(transform(plan, change), ("n",))

    rule = sv.Rule("n_is_x", apply, "n is nearly x", exact=False)
    sv.register_rule(rule)
    pipeline = rows.derive(n=sv.col("x") + 1)
    assert by_name(pipeline)["n_is_x"].why == runner.NEEDS_CLOSE
    plan, outcomes = optimize(pipeline.options(fidelity="close").plan)
    assert "derive n = x" in show_plan(plan).splitlines()
    assert [(o.rule, o.notes) for o in outcomes] == [(rule, ("n",))]
    with pytest.raises(sv.PlanError, match="already registered"):
        sv.register_rule(sv.Rule("n_is_x", lambda plan: sv.Rewrite(plan), ""))
    with pytest.raises(sv.PlanError, match="no batch called 'first'; choose one of columns"):
        sv.register_rule(sv.Rule("other", apply, ""), batch="first")


@pytest.mark.usefixtures("forget_rules")
def test_a_rule_is_not_entered_where_there_is_nothing_that_it_acts_on():
    entered = []

    def look(plan):
        entered.append(plan)
        return sv.Rewrite(plan)

    sv.register_rule(sv.Rule("looks", look, "to see", acts_on=Filter))
    optimize(rows.plan)
    assert not entered
    off = by_name(rows.options(disable=["looks"]))["looks"]
    assert off.why == runner.DISABLED
    optimize(rows.filter(sv.col("x") > 1).plan)
    assert len(entered) == 1
