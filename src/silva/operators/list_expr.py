"""How people write steps on lists: `sv.list("history").truncate(50).hash(1_000_000)`.

Every method checks its arguments at once and appends a `Call`. The kernels are in
`silva.operators.list`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from silva.errors import PlanError
from silva.operators._features import arguments
from silva.operators._features.arguments import Number, Side
from silva.operators._features.table import read_table
from silva.operators.arguments import integer
from silva.operators.num_expr import NumExpr
from silva.plan.expr import Call, Col, Expr


class ListExpr(Expr):
    """A column of lists: of ids, of numbers, of words; or of arrays with one length.

    What is said of numbers in `NumExpr` holds here for the items of each list. A null list stays
    null, an empty one stays empty, and a null among the items stays a null, unless a method says
    otherwise.

    >>> list("history").truncate(50).hash(1000)
    history.truncate(n=50, side='right').hash(buckets=1000, seed=0)
    """

    __slots__ = ()

    def hash(self, buckets: int, seed: int = 0) -> Self:
        """Each item as a number from 0 to `buckets` - 1 (int64): see `NumExpr.hash`.

        >>> list("history").hash(1000, seed=7)
        history.hash(buckets=1000, seed=7)
        """
        return self._call("list.hash", **arguments.hash_params(buckets, seed))

    def modulo(self, n: int) -> Self:
        """The remainder of each item by `n`, from 0 to n - 1 (int64): see `NumExpr.modulo`.

        >>> list("history").modulo(100)
        history.modulo(n=100)
        """
        return self._call("list.modulo", **arguments.modulo_params(n))

    def clip(self, low: Number | None = None, high: Number | None = None) -> Self:
        """Each item moved between `low` and `high`: see `NumExpr.clip`.

        >>> list("watched").clip(0, 3600)
        watched.clip(low=0, high=3600)
        """
        return self._call("list.clip", **arguments.clip_params(low, high))

    def log1p(self) -> Self:
        """log(1 + x) of each item (float32): see `NumExpr.log1p`.

        >>> list("watched").log1p()
        watched.log1p()
        """
        return self._call("list.log1p")

    def bucketize(self, boundaries: Sequence[Number], right: bool = True) -> Self:
        """The interval that each item falls into (int64): see `NumExpr.bucketize`.

        >>> list("ages").bucketize([18, 65])
        ages.bucketize(boundaries=(18, 65), right=True)
        """
        return self._call("list.bucketize", **arguments.bucketize_params(boundaries, right))

    def fill_null(self, value: Any, nan: bool = False) -> Self:
        """`value` in place of null items, and an empty list in place of a null one, so that
        nothing is null afterwards. With `nan=True` also in place of NaN.

        >>> list("history").fill_null(0)
        history.fill_null(value=0, nan=False)
        """
        return self._call("list.fill_null", **arguments.fill_null_params(value, nan))

    def truncate(self, n: int, side: Side = "right") -> Self:
        """At most `n` items; `side` is where the others are cut off. `"right"` keeps the first
        n, `"left"` the last: the latest, where a history grows at its end.

        >>> list("history").truncate(50, side="left")
        history.truncate(n=50, side='left')
        """
        n = integer("n", n, 0)
        return self._call("list.truncate", n=n, side=arguments.side(side))

    def unique(self) -> Self:
        """Each value once, in the order of first occurrence. Nulls count as one value, NaNs too.

        >>> list("history").unique()
        history.unique()
        """
        return self._call("list.unique")

    def length(self) -> NumExpr:
        """The number of items (int64), nulls among them included; null for a null list.

        >>> list("history").length().clip(0, 50)
        history.length().clip(low=0, high=50)
        """
        return NumExpr(Call("list.length", (self.term,)))

    def pad(self, length: int, value: Any = 0, side: Side = "right") -> Self:
        """Arrays of one length, so that a batch is one array (rows, length); shorter lists get
        `value` at `side`. A longer list is an error: say with `truncate` what is to go. So is a
        null item, for which `fill_null` has the answer; a null list stays null.

        >>> list("history").truncate(50).pad(50)
        history.truncate(n=50, side='right').pad(length=50, value=0, side='right')
        """
        length = integer("length", length, 1)
        value = arguments.scalar(value)
        if not isinstance(value, bool | int | float):
            raise PlanError(f"lists are padded with a number, not {value!r}")
        return self._call("list.pad", length=length, value=value, side=arguments.side(side))

    def embed(self, table: Any) -> Self:
        """The row of `table`, a numpy array or torch tensor (ids, dimensions), for each id. Lists
        become lists of vectors, arrays (rows, length) become (rows, length, dimensions); so it
        also works after `batch(n, pad=0)`. An id that the table does not have is an error.

        The table is not copied and must not change while the pipeline is in use.

        >>> import numpy as np
        >>> list("ids").truncate(8).pad(8).embed(np.zeros((100, 16), np.float32))
        ids.truncate(n=8, side='right').pad(length=8, ...).embed(table of 100 × 16 float32)
        """
        return self._call("list.embed", table=read_table(table))


def list(name: str) -> ListExpr:
    """A column of lists, by name.

    >>> list("history").unique().truncate(20)
    history.unique().truncate(n=20, side='right')
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return ListExpr(Col(name))
