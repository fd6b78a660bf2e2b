"""What things cost is measured. Each number that is assumed instead has a reason, and they are few.

A number counts as assumed if it stands in the value of a constant of a module or of the default of
a field, or in a function; 0, 1 and 2, with which counters begin and pairs are halved, and powers of
ten, which change units and keep from dividing by zero, do not count in functions and fields.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

SILVA = Path(__file__).parents[2] / "src" / "silva"
ROOMS = ("cost", "planner", "run/placement")
BESIDE = ("insight/forecast.py", "insight/expected_run.py")
"""They predict with the same model."""
MOST_CONSTANTS = 64
MOST_IN_FUNCTIONS = 17
"""As few as there are; lower both when there are fewer."""
ADVICE = """{found} numbers are assumed about what things cost, {most} are allowed:

{every}

Derive the new one from another one, measure it, or use one that is there for the same reason
(`cost/costs.py` has those of blocks, `cost/model.py` and `cost/experiment.py` those of
decisions). If that cannot be, take another one out; do not write it into a function instead."""


def files() -> list[Path]:
    rooms = [path for room in ROOMS for path in sorted((SILVA / room).rglob("*.py"))]
    return [*rooms, *(SILVA / name for name in BESIDE)]


def numbers(node: ast.AST) -> list[float]:
    return [
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant)
        and isinstance(one.value, int | float)
        and not isinstance(one.value, bool)
    ]


def is_assumed(value: float) -> bool:
    """Whether a number in a function or of a field was chosen."""
    return value not in (0, 1, 2) and math.log10(value) % 1 != 0


def assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """The names that are given a value."""
    for node in body:
        if isinstance(node, ast.Assign):
            yield from ((ast.unparse(target), node.value, node) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value, node


def constants(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The constants of a module and of its classes, each with its line."""
    for name, value, node in assigned(tree.body):
        if numbers(value) and (name.strip("_()").isupper() or ", " in name):
            yield name, node.lineno
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef):
            for name, value, node in assigned(one.body):
                if any(map(is_assumed, numbers(value))):
                    yield f"{one.name}.{name}", node.lineno


def in_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            for node in ast.walk(one):
                if isinstance(node, ast.Constant) and any(map(is_assumed, numbers(node))):
                    yield f"{one.name}: {node.value!r}", node.lineno


@pytest.mark.parametrize(
    ("find", "most"), [(constants, MOST_CONSTANTS), (in_functions, MOST_IN_FUNCTIONS)]
)
def test_few_numbers_are_assumed(find, most) -> None:
    found = [
        f"{path.relative_to(SILVA)}:{line} {name}"
        for path in files()
        for name, line in sorted(set(find(ast.parse(path.read_text()))), key=lambda one: one[1])
    ]
    every = "\n".join(found)
    assert len(found) <= most, ADVICE.format(found=len(found), most=most, every=every)


def test_each_constant_has_its_reason_below_it() -> None:
    for path in files():
        body = ast.parse(path.read_text()).body
        below = {id(one): after for one, after in itertools.pairwise(body)}
        for name, value, node in assigned(body):
            if not numbers(value) or not name.strip("_()").isupper():
                continue
            after = below.get(id(node))
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert said, f"{path}:{node.lineno}: say of {name} in which unit it is, and why"
