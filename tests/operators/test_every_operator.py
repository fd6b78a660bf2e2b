"""Every operator has an example, a line in the documentation, and a test of its own.

A test of its own is marked with the operators it is about, `@pytest.mark.operators("image.crop")`;
it fails if it uses none of them while it runs (`conftest.py`).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import CLASSES, examples, methods

from silva.plan.operator import built_in_operators

HERE = Path(__file__).parent
PAGES = {
    "image": "images.md", "text": "text.md", "audio": "audio.md", "num": "features.md",
    "list": "features.md",
}  # fmt: skip
OPERATORS = [o.name for o in built_in_operators() if o.name.partition(".")[0] in CLASSES]
TOKENIZE = {"text.tokenize"}
"""Needs a tokenizer of another library, which a doctest does not have."""


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - TOKENIZE))
def test_every_operator_is_called_in_the_doctest_of_a_method(name: str) -> None:
    assert examples().get(name), f"add an example of {name} to the docstring of its method"


def readable(code: str) -> str:
    """Python for a call in which `…` stands for a default, or for arguments that are left out."""
    return re.sub(r"(, )?(?<!=)…", "", code).replace("(, ", "(").replace("…", "...")


def documented(kind: str) -> dict[str, ast.Call]:
    """The calls in the first cells of a page's tables of methods."""
    page = HERE.parents[1] / "docs" / PAGES[kind]
    found = {}
    wanted = False
    for line in page.read_text().splitlines():
        if line.startswith("| method"):
            wanted = " of `sv." not in line or f"of `sv.{kind}`" in line
        if wanted and line.startswith("| `"):
            for code in re.findall(r"`([^`]+\))`", line.split(" | ")[0]):
                call = ast.parse(readable(code), mode="eval").body
                assert isinstance(call, ast.Call)
                assert isinstance(call.func, ast.Name)
                found[call.func.id] = call
    return found


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_of_a_kind_lists_every_method_with_the_arguments_it_has(kind: str) -> None:
    listed, written = documented(kind), methods(kind)
    if kind == "list":  # the page says which methods of `sv.num` are methods of `sv.list` as well
        listed |= {name: call for name, call in documented("num").items() if name in written}
    missing, unknown = set(written) - set(listed), set(listed) - set(written)
    assert not missing, f"add a line to the table of methods in docs/{PAGES[kind]}: {missing}"
    assert not unknown, f"docs/{PAGES[kind]} lists methods that do not exist: {unknown}"
    for name, call in listed.items():
        parameters = inspect.signature(written[name]).parameters
        named = {k.arg: k.value for k in call.keywords}
        given = [a.id for a in call.args if isinstance(a, ast.Name)] + list(named)
        assert set(given) <= set(parameters), f"{PAGES[kind]}: {name} has no such argument"
        for argument, value in named.items():
            text = ast.unparse(value)
            if text != "...":
                default = parameters[argument].default
                assert eval(text) == default, f"{name}({argument}=…)"  # noqa: S307  our own page


def marked(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(".operators"):
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def functions() -> Iterator[ast.FunctionDef]:
    for path in sorted(HERE.glob("test_*.py")):
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        yield from (node for node in nodes if isinstance(node, ast.FunctionDef))


OWN = {name for function in functions() for name in marked(function)}


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_has_a_test_of_its_own(name: str) -> None:
    assert name in OWN, f'mark the test of {name} with @pytest.mark.operators("{name}")'


def test_every_mark_names_an_operator() -> None:
    assert set(OPERATORS) >= OWN
