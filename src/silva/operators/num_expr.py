"""How people write steps on numbers and categories: `sv.num("price").clip(0).log1p()`.

Every method checks its arguments at once and appends a `Call`. The kernels are in
`silva.operators.num`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from silva.errors import PlanError
from silva.operators._features import arguments
from silva.operators._features.arguments import Number
from silva.operators.arguments import integer
from silva.plan.expr import Call, Col, Expr


class NumExpr(Expr):
    """A column of numbers, or of words to be hashed. Nulls stay nulls, and NaN stays NaN, unless a
    method says otherwise.

    >>> num("price").clip(0).log1p()
    price.clip(low=0).log1p()
    """

    __slots__ = ()

    def hash(self, buckets: int, seed: int = 0) -> Self:
        """A number from 0 to `buckets` - 1 (int64) that depends on the value and `seed` alone: the
        same in every process and on every machine.

        Whole numbers are hashed by their value, whatever their dtype; floats as float64 (all NaNs
        are one, and so are 0.0 and -0.0; 1.0 is not 1); text and bytes by their bytes.

        >>> num("user").hash(1000)
        user.hash(buckets=1000, seed=0)
        """
        return self._call("num.hash", **arguments.hash_params(buckets, seed))

    def modulo(self, n: int) -> Self:
        """The remainder by `n`, from 0 to n - 1 also for negative numbers (int64). Floats are an
        error.

        >>> num("user").modulo(100)
        user.modulo(n=100)
        """
        return self._call("num.modulo", **arguments.modulo_params(n))

    def clip(self, low: Number | None = None, high: Number | None = None) -> Self:
        """The nearest number from `low` to `high`; None is no bound. The dtype stays as it is, but
        whole numbers become float64 where a bound is not whole.

        >>> num("price").clip(high=99.5)
        price.clip(high=99.5)
        """
        return self._call("num.clip", **arguments.clip_params(low, high))

    def log1p(self) -> Self:
        """log(1 + x) as float32. A number of -1 or less is an error: `clip(0)` first.

        >>> num("price").log1p()
        price.log1p()
        """
        return self._call("num.log1p")

    def bucketize(self, boundaries: Sequence[Number], right: bool = True) -> Self:
        """The interval that a number falls into, from 0 to the number of boundaries (int64).

        A number on a boundary belongs to the interval above it; with `right=False` to the one
        below. As in `torch.bucketize` (whose default is False) and `np.searchsorted`; so NaN falls
        into the last.

        >>> num("age").bucketize([18, 65])
        age.bucketize(boundaries=(18, 65), right=True)
        """
        return self._call("num.bucketize", **arguments.bucketize_params(boundaries, right))

    def standardize(self, mean: Number, std: Number) -> Self:
        """(x - mean) / std, computed in float64 and rounded once, to float32.

        >>> num("price").standardize(19.5, 4)
        price.standardize(mean=19.5, std=4)
        """
        mean, std = arguments.number("mean", mean), arguments.number("std", std)
        if std <= 0:
            raise PlanError(f"std must be positive, not {std}")
        return self._call("num.standardize", mean=mean, std=std)

    def one_hot(self, classes: int) -> Expr:
        """A float32 array of `classes` numbers: 1 at the place of the class, else 0. A null is no
        class: all are 0. A number that is no class is an error.

        >>> num("label").one_hot(10)
        label.one_hot(classes=10)
        """
        classes = integer("classes", classes, 1)
        return Expr(Call("num.one_hot", (self.term,), (("classes", classes),)))

    def fill_null(self, value: Any, nan: bool = False) -> Self:
        """`value` in place of nulls; with `nan=True` also in place of NaN. Whole numbers become
        float64 where `value` is not whole.

        >>> num("price").fill_null(0, nan=True)
        price.fill_null(value=0, nan=True)
        """
        return self._call("num.fill_null", **arguments.fill_null_params(value, nan))


def num(name: str) -> NumExpr:
    """A column of numbers or categories, by name.

    >>> num("price").fill_null(0).clip(0, 100)
    price.fill_null(value=0, nan=False).clip(low=0, high=100)
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return NumExpr(Col(name))
