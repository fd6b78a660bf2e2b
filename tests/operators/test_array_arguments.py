"""An array where an operator takes a value: it is read, or refused in plain words."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from examples import CLASSES, methods

import silva as sv

ARRAYS = [np.array(2), np.array([1, 2]), np.array([1.0, 2.0, 3.0]), np.ones((2, 2)), np.array([]),
          np.array(["a", "b"])]  # fmt: skip
START = {
    "image": sv.image("a"), "text": sv.text("a"), "audio": sv.audio("a"), "num": sv.num("a"),
    "list": sv.list("a"), "tokens": sv.text("a").split(),
}  # fmt: skip


def arguments() -> list[tuple[str, str, str]]:
    """Every argument of every method."""
    return [
        (kind, name, argument)
        for kind in CLASSES
        for name, method in methods(kind).items()
        for argument in list(inspect.signature(method).parameters)[1:]
    ]


@pytest.mark.parametrize(("kind", "name", "argument"), arguments())
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_an_array_is_read_or_refused_by_silva(kind, name, argument, array):
    start = START[kind] if hasattr(START[kind], name) else START["tokens"]
    parameters = inspect.signature(getattr(start, name)).parameters
    given = {n: 2 for n, p in parameters.items() if p.default is inspect.Parameter.empty}
    try:
        made = getattr(start, name)(**given | {argument: array})
        sv.from_columns({"a": [1]}).derive(z=made)
        assert isinstance(hash(made.term), int)
        assert repr(made)
    except sv.PlanError as error:
        assert "ambiguous" not in str(error)  # noqa: PT017  it may also be read


def test_is_in_takes_an_array_of_one_dimension():
    rows = sv.from_columns({"x": [1, 2, 3]})
    found = rows.filter(sv.col("x").is_in(np.array([1, 3]))).head(3)
    assert [row["x"] for row in found] == [1, 3]
    for array in (np.array(1), np.ones((2, 2))):
        with pytest.raises(sv.PlanError, match="is_in takes a list of values"):
            sv.col("x").is_in(array)
