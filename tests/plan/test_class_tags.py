"""Names within silva may change, and its version: fingerprints stay."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
import types
from typing import Any

import pytest
from golden_pipelines import PIPELINES

import silva as sv
from silva.plan import operator as operators
from silva.plan.class_tags import home_of, tag_of, tagged
from silva.plan.expr import Call, Col, Literal
from silva.plan.fingerprint import digest, libraries
from silva.plan.fingerprint import hasher as hashing
from silva.plan.node import ManyInputs, Node, OneInput

MENTIONS = [lambda x: sv.col, lambda x, error=sv.StateError: error, lambda x, found=sv.col: found]


def pipeline():
    rows = sv.from_columns({"x": range(4)}).derive(y=sv.num("x").clip(0, 2) + 1)
    for step in MENTIONS:
        rows = rows.derive(z=step)
    return rows.shuffle(seed=1).batch(2)


@pytest.fixture
def before() -> dict[str, str]:
    """The fingerprint of every pipeline, under the names of today."""
    return fingerprints()


def fingerprints() -> dict[str, str]:
    return {
        name: build().fingerprint for name, build in {**PIPELINES, "mentions": pipeline}.items()
    }


def test_another_name_of_any_private_class_changes_nothing(before):
    public = {id(getattr(sv, name)) for name in sv.__all__}
    names = {cls: (cls.__name__, cls.__qualname__) for cls in owned(type) if id(cls) not in public}
    assert {Call, Col, Literal, Node} <= set(names)
    try:
        for cls in names:
            cls.__name__ = cls.__qualname__ = "Renamed"
        assert fingerprints() == before
    finally:
        for cls, (name, qualname) in names.items():
            cls.__name__, cls.__qualname__ = name, qualname


def test_other_names_of_fields_change_nothing():
    @tagged("Call", "op args params draw?")
    @dataclasses.dataclass(frozen=True)
    class Applied:
        operator: str
        to: tuple[Any, ...]
        constants: tuple[tuple[str, Any], ...] = ()
        drawn: tuple[str, int] | None = None

    call = Call("num.clip", (Col("x"),), (("low", 0),))
    assert digest(Applied("num.clip", (Col("x"),), (("low", 0),))) == digest(call)


def test_another_module_of_any_class_or_function_changes_nothing(before, monkeypatch):
    found = owned(type | types.FunctionType)
    assert {Call, sv.Expr, sv.StateError, sv.col} <= set(found)
    for value in found:
        monkeypatch.setattr(value, "__module__", "silva.elsewhere")
    assert fingerprints() == before


def owned(kind: type | types.UnionType) -> list[Any]:
    """All that silva itself defines of some kind, in the modules that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "silva"]
    values = {id(value): value for module in modules for value in vars(module).values()}
    return [
        value
        for value in values.values()
        if isinstance(value, kind) and str(value.__module__).partition(".")[0] == "silva"
    ]


@pytest.mark.parametrize("version", ["0.2.0", "99.0"])
def test_another_version_of_silva_changes_nothing(before, version, monkeypatch):
    installed = importlib.metadata.version
    monkeypatch.setattr(sv, "__version__", version)
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "silva" else installed(name)
    )
    libraries.package_of.cache_clear()
    assert fingerprints() == before


def test_a_revision_changes_what_uses_the_operator_and_nothing_else(monkeypatch):
    rows = sv.from_columns({"x": range(4)})
    clipped, plain = rows.derive(y=sv.num("x").clip(0, 2)), rows.derive(y=sv.num("x").modulo(2))
    before, other = clipped.fingerprint, plain.fingerprint
    monkeypatch.setitem(operators._REVISIONS, "num.clip", 1)
    assert clipped.fingerprint != before
    assert plain.fingerprint == other


def test_every_node_has_a_tag():
    found = [cls for kind in (Node, OneInput, ManyInputs) for cls in kind.__subclasses__()]
    found = [cls for cls in found if cls not in (OneInput, ManyInputs)]
    assert len(found) >= 19
    assert all("__silva_tag__" in vars(cls) for cls in found)


def test_nothing_of_silva_is_hashed_by_the_name_of_its_class(monkeypatch):
    """But what has a tag, or is public."""
    untagged = set()

    def watched(self, value, name, add=hashing.Hasher._add_object):
        kind = type(value)
        if kind.__module__.partition(".")[0] == "silva" and dataclasses.is_dataclass(value):
            known = isinstance(value, hashing.Node | hashing.Function | hashing.Stateful)
            if tag_of(value) is None and not known:
                untagged.add(kind)
        elif isinstance(value, type | types.FunctionType) and hashing.is_library(value):
            module = value.__module__.partition(".")[0]
            if module == "silva" and home_of(value) == "silva":
                untagged.add(value)
        add(self, value, name)

    monkeypatch.setattr(hashing.Hasher, "_add_object", watched)
    for build in PIPELINES.values():
        assert build().fingerprint
    assert not untagged


def test_words_and_fields_are_as_many():
    with pytest.raises(ValueError, match="zip"):
        tagged("point", "x y")(dataclasses.make_dataclass("Point", ["x"]))
