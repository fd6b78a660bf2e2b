"""Declarations of operators: a decorator on the kernel that registers it with its facts.

The part of a name before the dot is the kind of column; `silva.plan.operator` imports the module
of that name here when a plan first needs it. Everything else that lists operators (laws, the tests
of laws, the check of the documentation) asks the registry for a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from silva.plan.operator import Kernel, Operator, register_operator

K = TypeVar("K", bound=Callable[..., Any])


def column_operator(
    name: str,
    *,
    facts: Iterable[str] = (),
    random: bool = False,
    releases_gil: bool = True,
    ragged: bool = False,
    by_row: bool = False,
    needs: tuple[str, ...] = (),
    keeps_masks: bool = False,
    best_rows: Callable[[Mapping[str, Any]], int] | None = None,
    form: Callable[[Any], Kernel] | None = None,
) -> Callable[[K], K]:
    """Registers the decorated kernel, `kernel(columns, params, draw)`, as the operator `name`.

    The other arguments are the fields of `Operator`. `form` turns a function of another signature
    into a kernel.
    """

    def register(function: K) -> K:
        kernel = function if form is None else form(function)
        register_operator(
            Operator(
                name,
                kernel,
                random=random,
                releases_gil=releases_gil,
                ragged=ragged,
                by_row=by_row,
                needs=needs,
                keeps_masks=keeps_masks,
                best_rows=best_rows,
                facts=frozenset(facts),
            )
        )
        return function

    return register
