"""The operators on lists: importing this module registers them.

What they mean is said where they are written, in `list_expr`; the kernels are in `_features`.
"""

from __future__ import annotations

import silva.operators.list_laws  # noqa: F401  registers them
from silva.operators._features import lists, numbers
from silva.operators.list_expr import ListExpr, list
from silva.operators.num import of_one_column
from silva.plan.operator import Operator, register_operator

for _name, _kernel in {
    "hash": lists.on_lists(numbers.hash),
    "modulo": lists.on_lists(numbers.modulo),
    "clip": lists.on_lists(numbers.clip),
    "log1p": lists.on_lists(numbers.log1p),
    "bucketize": lists.on_lists(numbers.bucketize),
    "fill_null": lists.fill_null,
    "truncate": lists.truncate,
    "unique": lists.unique,
    "length": lists.length,
    "pad": lists.pad,
    "embed": lists.embed,
}.items():
    register_operator(Operator(f"list.{_name}", of_one_column(_kernel)))

__all__ = ["ListExpr", "list"]
