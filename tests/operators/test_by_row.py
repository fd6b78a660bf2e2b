"""Operators that make each row of that row alone get all rows at once, whatever their types."""

from __future__ import annotations

import numpy as np
import pytest

from silva.columns import Values
from silva.physical.stage.evaluate import evaluate
from silva.plan import operator as operators
from silva.plan.expr import Call, Col


@pytest.mark.parametrize(("by_row", "calls"), [(True, 1), (False, 3)])
def test_rows_of_several_shapes_come_at_once_where_each_is_made_alone(by_row, calls, monkeypatch):
    seen = []

    def kernel(columns, params, draw):
        seen.append(len(columns[0]))
        return Values([row * 2 for row in columns[0].rows()])

    doubled = operators.Operator("test.double", kernel, by_row=by_row)
    monkeypatch.setitem(operators._OPERATORS, "test.double", doubled)
    rows = [np.ones(shape, np.float32) for shape in ((2, 3), (2, 4), (2, 3), (2, 5))]
    made = evaluate(Call("test.double", (Col("x"),)), {"x": Values(rows)}, np.arange(4), None, ())
    assert [row.shape for row in made.rows()] == [row.shape for row in rows]
    assert len(seen) == calls


def test_clips_are_worked_on_alone():
    operators.import_built_in()
    audio = [o for name, o in operators._OPERATORS.items() if name.startswith("audio.")]
    assert len(audio) >= 14
    assert all(operator.by_row for operator in audio)
