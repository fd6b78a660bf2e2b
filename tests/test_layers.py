"""Imports point downward only, also those inside functions and under TYPE_CHECKING.

Strings such as "silva.operators.image" count as imports too in a file that uses importlib, so that
a lazy import by name is no way around the rule.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "silva"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "lifetime"),
    ("folders",),
    ("columns",),
    ("plan",),
    ("order",),
    ("operators",),
    ("io",),
    ("cost",),
    ("rewrite",),
    ("physical",),
    ("cache",),
    ("run",),
    ("planner",),
    ("facts",),
    ("feed",),
    ("insight",),
    ("options",),
    ("loader",),
    ("rerun", "service"),
    ("joins",),
    ("sinks",),
    ("arguments", "inspect", "serving", "writing"),
    ("pipeline",),
    ("combine", "sources"),
    ("store",),
    ("fabric",),
    ("train",),
    ("serve",),
    ("job",),
    ("testing",),
    ("__init__", "__main__", "cli", "demo"),
)
"""From the bottom to the top: each may import itself and what stands before it."""

EXCEPTIONS = {
    ("silva.plan.operator", "operators"): (
        "built-in operators register themselves when their name is first asked for; the plan knows "
        "them by name only, and imports nothing of theirs"
    ),
    ("silva.plan.operator", "serve"): (
        "operators of models and indices register themselves in the same way as the built-in ones"
    ),
    ("silva.writing", "store"): (
        "a pipeline can be written into a table, and a table gives pipelines: of the two, the verb "
        "asks for the other when it is called"
    ),
    ("silva.serving", "pipeline"): ("`over` gives a pipeline, whose verb it is"),
    ("silva.serving", "serve"): (
        "a pipeline answers requests: the verb asks for what answers them when it is called"
    ),
    ("silva.inspect", "serve"): (
        "what_if asks about the quality of a pipeline that answers requests, too"
    ),
    ("silva.writing", "serve"): (
        "a pipeline can be written into an index, and what an index gives is searched by pipelines"
    ),
}
"""(module, part it may import all the same): the reason."""

HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}


@dataclass(frozen=True)
class Import:
    module: str
    """The module that imports, e.g. `silva.plan.operator`."""
    line: int
    part: str
    """The file or folder directly in silva that is imported, e.g. `operators`."""

    def __str__(self) -> str:
        own = part_of(self.module)
        return f"{self.module}, line {self.line}: {own} imports {self.part}, which is above it"


def part_of(module: str) -> str:
    """The file or folder directly in silva that holds a module; `__init__` for silva itself."""
    return [*module.split("."), "__init__"][1]


def imports(module: str, source: str, *, package: bool = False) -> Iterator[Import]:
    """Everything of silva that a module imports, wherever in the file."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt | ast.expr)]
    targets = [(node.lineno, t) for node in nodes for t in _imported(node, module, package)]
    if any(t.split(".")[0] == "importlib" for _, t in targets):
        targets += [(node.lineno, t) for node in nodes for t in _named(node)]
    for line, target in sorted(set(targets)):
        if target.split(".")[0] == "silva":
            yield Import(module, line, part_of(target))


def _imported(node: ast.AST, module: str, package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        steps = node.level - package  # one dot is the folder of a file, but a package itself
        above = module.split(".")[: -steps or None]
        base = ".".join([*above, base] if base else above)
    if base != "silva":
        return [base]
    parts = (alias.name for alias in node.names)  # `from silva import io` imports the folder
    return [f"silva.{name}" if name in HEIGHT else "silva" for name in parts]


def _named(node: ast.AST) -> list[str]:
    """The module that a string names, or begins to name in an f-string."""
    value = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(value, str) or not re.fullmatch(r"silva\.\w[\w.]*", value):
        return []
    return [value.rstrip(".")]


def files() -> list[tuple[str, Path]]:
    """Every module's name and file."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def all_imports() -> list[Import]:
    return [
        found
        for module, path in files()
        for found in imports(
            module, path.read_text(encoding="utf-8"), package=path.stem == "__init__"
        )
    ]


def upward(found: list[Import]) -> list[Import]:
    """The imports that point up."""
    return [i for i in found if HEIGHT[i.part] > HEIGHT[part_of(i.module)]]


def test_every_file_and_folder_has_a_layer() -> None:
    assert files(), f"no Python files in {ROOT}"
    unknown = {part_of(module) for module, _ in files()} | {i.part for i in all_imports()}
    unknown -= set(HEIGHT)
    assert not unknown, f"give these a place in LAYERS: {', '.join(sorted(unknown))}"


def test_imports_point_downward() -> None:
    known = [i for i in all_imports() if i.part in HEIGHT and part_of(i.module) in HEIGHT]
    wrong = [i for i in upward(known) if (i.module, i.part) not in EXCEPTIONS]
    if wrong:
        order = " < ".join("/".join(parts) for parts in LAYERS)
        pytest.fail(
            f"{len(wrong)} imports point upward:\n  "
            + "\n  ".join(map(str, wrong))
            + f"\nThe order is {order}.\nMove what is shared down, or pass it in from above.",
            pytrace=False,
        )


ROOMS: dict[str, tuple[str, ...]] = {
    "columns": ("serial",),
    "io": ("objects", "arrays", "text", "lake", "datasets"),
    "operators": ("items", "text", "join", "image", "audio"),
    "operators.image": ("decoding", "laws"),
    "physical": ("stage",),
    "plan": ("fingerprint",),
    "rewrite": ("rules",),
    "run": ("shared", "pools", "ray", "placement", "flows"),
    "serve": ("models", "index", "loop", "engine", "search", "cluster", "http"),
    "serve.models": ("encoders", "endpoint", "gguf"),
    "serve.search": ("tuning", "attribution"),
    "store": ("versions", "files", "append", "derived"),
    "train": ("graph", "planning", "running", "checkpoint"),
}
"""Rooms within a room, from the bottom to the top. Files beside them may stand anywhere between."""


def unit_of(module: str, room: str) -> str | None:
    """The room within a room, or the file beside such rooms, that holds a module; None if the room
    does not hold it."""
    depth = room.count(".") + 2
    parts = module.split(".")[1:]
    held = parts[: depth - 1] == room.split(".") and len(parts) >= depth
    return ".".join(parts[:depth]) if held else None


def test_every_room_within_a_room_has_its_place() -> None:
    found: dict[str, set[str]] = {}
    for path in ROOT.glob("*/*/**/__init__.py"):
        *above, name = path.parent.relative_to(ROOT).parts
        if not name.startswith("_"):
            found.setdefault(".".join(above), set()).add(name)
    assert found == {room: set(within) for room, within in ROOMS.items()}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_within_a_room_do_not_import_each_other_in_a_circle(room: str) -> None:
    needs: dict[str, set[str]] = {}
    for module, path in files():
        own = unit_of(module, room)
        if own is None:
            continue
        source = path.read_text(encoding="utf-8")
        package = path.stem == "__init__"
        for node in ast.walk(ast.parse(source)):
            for target in _modules(node, module, package):
                other = unit_of(target, room)
                if other is not None and other != own:
                    needs.setdefault(own, set()).add(other)
    for below, above in itertools.pairwise(ROOMS[room]):
        needs.setdefault(f"{room}.{above}", set()).add(f"{room}.{below}")
    for within in ROOMS[room]:
        own = f"{room}.{within}"
        reached, left = set(), sorted(needs.get(own, ()))
        while left:
            unit = left.pop()
            if unit not in reached:
                reached.add(unit)
                left += sorted(needs.get(unit, ()))
        circle = sorted(unit for unit in reached if own in needs.get(unit, ()))
        assert not circle, f"{own} needs {circle}, which import it"


def _modules(node: ast.AST, module: str, package: bool) -> list[str]:
    """The modules that an import names: `from silva.run import window` names `silva.run.window`."""
    found = _imported(node, module, package)
    if isinstance(node, ast.ImportFrom) and not node.level and node.module in ROOM_NAMES:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in found if name.count(".") > 1]


ROOM_NAMES = {f"silva.{room}" for room in ROOMS}


def test_every_exception_is_still_needed() -> None:
    used = {(i.module, i.part) for i in all_imports()}
    assert not EXCEPTIONS.keys() - used, "delete these from EXCEPTIONS"


@pytest.mark.parametrize(
    "source",
    [
        "import silva.run.queue",
        "from silva.run import queue",
        "from silva import run",
        "from ..run import queue",
        "from .. import run",
        "def f():\n    from silva.run.queue import Queue",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from silva.run import Queue",
        "import importlib\nimportlib.import_module('silva.run.queue')",
        "import importlib.util as u\nu.find_spec(f'silva.run.{name}')",
    ],
)
def test_an_upward_import_is_found_wherever_it_hides(source: str) -> None:
    assert [i.part for i in upward(list(imports("silva.plan.node", source)))] == ["run"]


@pytest.mark.parametrize(
    "source",
    [
        "from silva.errors import PlanError",
        "from silva.plan.expr import Term",
        "from .expr import Term",
        "import numpy, silvan.run",
        "'silva.run.queue'",
        "'''Stages live in silva.run.'''",
    ],
)
def test_other_imports_are_left_alone(source: str) -> None:
    assert not upward(list(imports("silva.plan.node", source)))


def test_relative_imports_of_a_package_start_at_the_package_itself() -> None:
    (found,) = imports("silva.plan", "from .expr import Term", package=True)
    assert found.part == "plan"
