"""Modules that run once for each distinct row of a batch.

    values of U distinct rows ─► module ─► U results ─► index_select ─► one for each of B rows

Gradients flow back through the same index: those of equal rows are summed before they reach the
module, as they would be without it. The module must be a function of each row by itself. One that
computes across rows (batch normalisation) is refused; one that draws random numbers (dropout) draws
them once per distinct row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from silva.columns.ragged import Grouped, Ragged
from silva.errors import ColumnError

if TYPE_CHECKING:
    from silva.feed.per_group_module import PerGroup


def per_group(module: Any) -> PerGroup:
    """Wraps a torch module to run on the distinct rows of an `sv.Grouped`, and expands its result.

    A plain tensor is passed to the module unchanged, so a wrapped model takes both kinds.
    The names in its `state_dict` do not change.

    >>> import silva as sv, torch
    >>> log = sv.from_columns({"hist": [[1, 2], [1, 2], [3, 0]]}).batch(3, pad=0, grouped="hist")
    >>> pool = sv.per_group(torch.nn.EmbeddingBag(5, 4))
    >>> [pool(batch["hist"]).shape for batch in log.loader(workers=0).to_torch()]
    [torch.Size([3, 4])]
    """
    from silva.feed.per_group_module import PerGroup

    return PerGroup(module)


def call_once(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls `call` with the distinct rows of grouped arguments, and expands its result to all rows.
    Where arguments are grouped differently, or others have one value per row, all are expanded."""
    given = (*args, *named.values())
    groups = [x for x in given if isinstance(x, Grouped)]
    if not groups:
        return call(*args, **named)
    if len(groups) < len(given) - _constants(given) or not _alike(groups):
        return call(*map(_all, args), **{name: _all(x) for name, x in named.items()})
    distinct, inverse = len(groups[0].unique), groups[0].inverse
    made = call(*map(_unique, args), **{name: _unique(x) for name, x in named.items()})
    if distinct == len(inverse):
        return made  # indices are in order of appearance: these are the rows themselves
    return _expanded(made, inverse, distinct)


def _constants(given: tuple[Any, ...]) -> int:
    """The number of arguments that are the same for all rows."""
    return sum(not isinstance(x, Grouped | Ragged) and not hasattr(x, "shape") for x in given)


def _alike(groups: list[Grouped]) -> bool:
    first = groups[0].inverse
    return all(
        g.inverse is first or (g.inverse.shape == first.shape and bool((g.inverse == first).all()))
        for g in groups[1:]
    )


def _all(value: Any) -> Any:
    return value.expand() if isinstance(value, Grouped) else value


def _unique(value: Any) -> Any:
    return value.unique if isinstance(value, Grouped) else value


def _expanded(made: Any, inverse: Any, distinct: int) -> Any:
    if isinstance(made, dict):
        return type(made)((name, _expanded(x, inverse, distinct)) for name, x in made.items())
    if isinstance(made, tuple) and hasattr(made, "_fields"):
        return type(made)(*(_expanded(x, inverse, distinct) for x in made))
    if isinstance(made, tuple | list):
        return type(made)(_expanded(x, inverse, distinct) for x in made)
    if isinstance(made, Ragged) and len(made) == distinct:
        return Grouped.of(made, inverse).expand()
    if not getattr(made, "shape", ()) or len(made) != distinct:
        raise ColumnError(
            f"per_group needs a module that returns one result per row: for {distinct} distinct "
            f"rows it returned {_described(made)}"
        )
    return made.index_select(0, inverse)


def _described(made: Any) -> str:
    shape = getattr(made, "shape", None)
    return f"a {type(made).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
