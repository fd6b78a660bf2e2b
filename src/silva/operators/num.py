"""The operators on numbers and categories: importing this module registers them.

What they mean is said where they are written, in `num_expr`; the kernels are in `_features`.
"""

from __future__ import annotations

import silva.operators.num_laws  # noqa: F401  registers them
from silva.columns import Column
from silva.operators._features import numbers
from silva.operators._features.arguments import Params
from silva.operators._features.lists import ItemKernel
from silva.operators.num_expr import NumExpr, num
from silva.plan.operator import Kernel, Operator, register_operator


def of_one_column(kernel: ItemKernel) -> Kernel:
    """A kernel in the form that plans call."""

    def run(columns: list[Column], params: Params, draw: object) -> Column:
        return kernel(columns[0], params)

    return run


for _name, _kernel in {
    "hash": numbers.hash,
    "modulo": numbers.modulo,
    "clip": numbers.clip,
    "log1p": numbers.log1p,
    "bucketize": numbers.bucketize,
    "standardize": numbers.standardize,
    "one_hot": numbers.one_hot,
    "fill_null": numbers.fill_null,
}.items():
    register_operator(Operator(f"num.{_name}", of_one_column(_kernel)))

__all__ = ["NumExpr", "num"]
