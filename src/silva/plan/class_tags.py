"""The names of silva's own classes in fingerprints.

A fingerprint names caches, states and columns of tables, so it must outlive every change of names
within silva. A class that takes part in one declares a tag, and a word for each of its fields: both
stay as they are when the class, a field or a module gets another name. What 0.1 wrote is kept to
the byte: there, tags were the names of that time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)
_TAG = "__silva_tag__"
_NAME = "__silva_name__"

PACKAGE = "silva==0.1.0"
"""Stands for silva of any version: a new version does not change functions that use silva."""


@dataclasses.dataclass(frozen=True)
class Tag:
    """The words by which fingerprints know a class and its fields."""

    name: str
    fields: tuple[tuple[str, str], ...]
    """Pairs (attribute, word), in the order in which they are hashed."""
    optional: frozenset[str]
    """Attributes that are left out while they are None, so that fingerprints from before they
    existed stay the same."""


def tagged(name: str, words: str) -> Callable[[_C], _C]:
    """Declares the tag of a dataclass, and a word for each field in the order of the fields: `-`
    for one that is not part of the identity, `word?` for one that is left out where it is None.

    >>> @tagged("point", "x y? -")
    ... @dataclasses.dataclass
    ... class Point:
    ...     across: int
    ...     up: int | None
    ...     note: str
    >>> tag_of(Point(1, None, "")).fields
    (('across', 'x'), ('up', 'y'))
    """

    def declare(cls: _C) -> _C:
        names = [field.name for field in dataclasses.fields(cls)]
        pairs = list(zip(names, words.split(), strict=True))
        tag = Tag(
            name,
            tuple((attribute, word.rstrip("?")) for attribute, word in pairs if word != "-"),
            frozenset(attribute for attribute, word in pairs if word.endswith("?")),
        )
        setattr(cls, _TAG, tag)
        return cls

    return declare


def tag_of(value: Any) -> Tag | None:
    """The tag that an object's own class declares; None if it has none."""
    tag: Tag | None = vars(type(value)).get(_TAG)
    return tag


_HOMES_0_1 = {
    "silva.columns.grouped_batch": "Grouped",
    "silva.columns.ragged": "Ragged",
    "silva.errors": "ColumnError DeadlineError FailureBudgetExceeded LoaderError PicklingError "
    "PlanError RowError ServiceError SilvaError SourceError StateError TableError WorkerError",
    "silva.feed.per_group": "per_group",
    "silva.given": "Weights",
    "silva.joins.latest": "Latest",
    "silva.loader": "Loader",
    "silva.operators.audio_expr": "audio AudioExpr",
    "silva.operators.batch_mixing": "cutmix mixup",
    "silva.operators.image_expr": "image ImageExpr",
    "silva.operators.list_expr": "list ListExpr",
    "silva.operators.num_expr": "num NumExpr",
    "silva.operators.text_expr": "text TextExpr TokensExpr",
    "silva.optimize.rewrite": "Rewrite",
    "silva.optimize.runner": "Rule register_rule",
    "silva.order.reshard": "reshard",
    "silva.order.state": "merge_states",
    "silva.pipeline": "Pipeline",
    "silva.plan.expr": "Expr col",
    "silva.plan.function": "batched impure owns stateful",
    "silva.plan.law": "Law laws register_law",
    "silva.plan.operator": "Operator register_operator",
    "silva.run.failures": "Skip Substitute",
    "silva.service.client": "Served connect",
    "silva.service.server": "Service",
    "silva.several": "concat mix zip",
    "silva.sources": "from_arrow from_columns from_huggingface from_items from_torch read_arrow "
    "read_csv read_delta read_files read_iceberg read_json read_lance read_lines read_npy "
    "read_parquet read_tar",
    "silva.store.read": "read_table",
    "silva.store.table": "Table",
}
_HOME_0_1 = {name: module for module, names in _HOMES_0_1.items() for name in names.split()}


def named(name: str) -> Callable[[_C], _C]:
    """Declares the name of a class that is hashed as a class, with the attributes of its objects.

    >>> @named("point")
    ... class Point: ...
    >>> name_of(Point)
    'point'
    """

    def declare(cls: _C) -> _C:
        setattr(cls, _NAME, name)
        return cls

    return declare


def name_of(value: Any) -> str:
    """The name under which a function or class is hashed."""
    name: str = vars(value).get(_NAME, value.__qualname__)
    return name


def home_of(value: Any) -> str:
    """The module under which a function or class of silva's is hashed: that of 0.1, or `silva`."""
    return _HOME_0_1.get(name_of(value).partition(".")[0], "silva")
