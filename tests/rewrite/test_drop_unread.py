"""The rule `drop_unread`: what nobody reads is not run, and nothing else changes."""

from __future__ import annotations

import silva as sv
from silva.plan.show import show_plan
from silva.rewrite.rules.drop_unread import apply

rows = sv.from_columns({"x": range(4)})


def test_a_step_that_nobody_reads_goes():
    written = rows.derive(a=lambda x: x).derive(b=lambda x: x).select("b")
    assert "derive a" not in show_plan(apply(written.plan).plan)
    assert "derive b" in show_plan(apply(written.plan).plan)


def test_a_step_that_is_read_or_impure_stays():
    read = rows.derive(a=lambda x: x).derive(b=lambda a: a).select("b")
    assert "derive a" in show_plan(apply(read.plan).plan)
    noisy = rows.derive(a=sv.impure(lambda x: x)).select("x")
    assert "derive a" in show_plan(apply(noisy.plan).plan)


def test_the_order_of_the_columns_stays_when_one_is_written_twice():
    twice = rows.derive(m=lambda x: x).derive(n=lambda x: x).derive(m=lambda x: -x)
    found = twice.batch(4).head(1)[0]
    assert list(found) == list(twice.options(optimize=False).batch(4).head(1)[0])
