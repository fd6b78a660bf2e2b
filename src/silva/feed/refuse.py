"""Errors for columns that torch or jax cannot hold."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from silva.errors import ColumnError


def refuse_missing(name: str, library: str) -> NoReturn:
    raise ColumnError(
        f"column {name!r} has missing values, which {library} cannot represent: fill them, e.g. "
        f"derive({name}=lambda {name}: 0 if {name} is None else {name}), or filter those rows out"
    )


def refuse_type(name: str, dtype: np.dtype[Any], library: str) -> NoReturn:
    if dtype.kind in "mM":
        advice = f"make it a number, e.g. derive({name}=lambda {name}: {name}.astype('int64'))"
    else:
        advice = f"cast it, e.g. derive({name}=sv.col({name!r}).cast('float64'))"
    raise ColumnError(
        f"column {name!r} is {dtype}, a type that {library} does not have: {advice}, or drop it"
    )
