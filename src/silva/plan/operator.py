"""Built-in operators as the plan knows them: a name, a kernel, and what may be assumed of it.

The kernels live in `silva.operators` and register themselves here; `sv.register_operator` is the
same door for everyone else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError

Kernel = Callable[..., Any]
"""`kernel(columns, params, draw) -> Column`: whole columns in, one column of as many rows out.
`draw` gives the rows' random numbers; kernels that draw nothing ignore it."""


@dataclass(frozen=True)
class Operator:
    name: str
    kernel: Kernel
    random: bool = False
    """Draws from the row's random numbers."""
    releases_gil: bool = True
    """The kernel spends its time outside Python's lock."""


_OPERATORS: dict[str, Operator] = {}


def register_operator(operator: Operator) -> Operator:
    """Makes an operator known by its name; a name can be given only once."""
    if operator.name in _OPERATORS and _OPERATORS[operator.name].kernel is not operator.kernel:
        raise PlanError(f"an operator called {operator.name!r} is already registered")
    _OPERATORS[operator.name] = operator
    return operator


def adopt_operators(operators: tuple[Operator, ...]) -> None:
    """Makes operators known that came along with a stage, in a process that does not have them."""
    for found in operators:
        _OPERATORS.setdefault(found.name, found)


def is_built_in(operator: Operator) -> bool:
    """Whether every process can find the operator by its name alone."""
    return operator.kernel.__module__.partition(".")[0] == "silva"


def operator(name: str) -> Operator:
    """The operator of that name; built-in kinds are imported when first asked for."""
    if name not in _OPERATORS:
        kind, dot, _ = name.partition(".")
        _import_kind(kind if dot else "arithmetic")
    try:
        return _OPERATORS[name]
    except KeyError:
        raise PlanError(f"there is no operator called {name!r}") from None


def import_built_in() -> None:
    """Imports the built-in operators of every kind, for those who ask what there is."""
    for kind in ("arithmetic", "audio", "image", "list", "num", "text"):
        _import_kind(kind)


def _import_kind(kind: str) -> None:
    import importlib
    import importlib.util

    module = f"silva.operators.{kind}"
    if kind.isidentifier() and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
