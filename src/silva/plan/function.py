"""Steps: expressions, and plain Python functions with the columns that they read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from silva.errors import PlanError
from silva.plan.arguments import names_of
from silva.plan.expr import Term, show_term
from silva.plan.hints import WHOLE_ROWS

F = TypeVar("F")

RNG = "rng"
"""The parameter that receives the row's random generator."""


@dataclass(frozen=True)
class Marks:
    """What decorators declare about a function."""

    batched: bool = False
    batch_size: int | None = None
    owns: frozenset[str] = frozenset()
    impure: bool = False


@dataclass(frozen=True)
class Stateful:
    """A class that each worker instantiates once, with the arguments for it."""

    cls: type
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def build(self) -> Callable[..., Any]:
        built: Callable[..., Any] = self.cls(*self.args, **dict(self.kwargs))
        return built


@dataclass(frozen=True)
class Function:
    """A function step. Compared by the identity of the function itself."""

    fn: Any
    """The callable, or a `Stateful` that builds it in the worker."""
    reads: tuple[str, ...]
    """Columns read, in the order of the positional parameters, keyword-only ones last."""
    keywords: tuple[str, ...] = ()
    """The parameters that must be passed by keyword."""
    takes_rng: bool = False
    marks: Marks = field(default=Marks())

    @property
    def where(self) -> str:
        return locate(self.fn)

    @property
    def name(self) -> str:
        return describe(self.fn)


Step = Term | Function
"""What derives or tests a value: an expression or a plain function."""


def show_step(step: Step) -> str:
    """A step as text; a function with the file and line where it was written."""
    if not isinstance(step, Function):
        return show_term(step)
    names = [*step.reads, *([RNG] if step.takes_rng else [])]
    return f"{step.name}({', '.join(names)})  [{step.where}]"


def batched(fn: F | None = None, *, size: int | None = None) -> Any:
    """Marks a function of whole columns: it receives arrays and returns arrays.

    A row's result must not depend on its neighbours; with `size=n` the function sees fixed logical
    chunks of n rows instead, and nothing is moved across it.

    >>> @batched
    ... def double(x):
    ...     return x * 2
    """
    if size is not None and (not isinstance(size, int) or size < 1):
        raise PlanError(f"@batched(size=…) needs a positive whole number, not {size!r}")
    mark = functools.partial(_mark, batched=True, batch_size=size)
    return mark if fn is None else mark(fn)


def owns(*columns: str) -> Callable[[F], F]:
    """Asks for private, writable copies of these columns' arrays.

    >>> @owns("image")
    ... def invert(image):
    ...     image[:] = 255 - image
    ...     return image
    """
    if not columns or not all(isinstance(c, str) for c in columns):
        raise PlanError("@owns names the columns that it wants copies of: @owns('image')")
    return functools.partial(_mark, owns=frozenset(columns))


def impure(fn: F) -> F:
    """Marks a function with side effects, or whose result may change: nothing crosses it.

    >>> @impure
    ... def count(x):
    ...     print(x)
    ...     return x
    """
    marked: F = _mark(fn, impure=True)
    return marked


def stateful(cls: type) -> Any:
    """Marks a class that is built once per worker: a model, a connection, a large table.

    Its arguments travel to the worker; the object never does.

    >>> @stateful
    ... class Scale:
    ...     def __init__(self, factor): self.factor = factor
    ...     def __call__(self, x): return x * self.factor
    >>> step = Scale(3)
    """
    if not inspect.isclass(cls) or not callable(cls) or "__call__" not in dir(cls):
        raise PlanError(f"@stateful marks a class with a __call__ method, not {cls!r}")

    @functools.wraps(cls, updated=())
    def make(*args: Any, **kwargs: Any) -> Stateful:
        return Stateful(cls, args, tuple(kwargs.items()))

    return make


def _mark(fn: Any, **changes: Any) -> Any:
    marks = getattr(fn, "__silva__", Marks())
    merged = {**marks.__dict__, **{k: v for k, v in changes.items() if v is not None}}
    if isinstance(fn, Stateful):
        raise PlanError("mark the __call__ method of a @stateful class, not its instances")
    try:
        fn.__silva__ = Marks(**merged)
    except AttributeError:
        raise PlanError(f"{describe(fn)} cannot be marked: wrap it in a def or lambda") from None
    return fn


def read_function(
    fn: Any, columns: tuple[str, ...], reads: Iterable[str] | None = None
) -> Function:
    """`fn` as a step, over the given columns."""
    target = fn.cls.__call__ if isinstance(fn, Stateful) else fn
    marks = getattr(target, "__silva__", Marks())
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise PlanError(
            f"{describe(fn)} ({locate(fn)}) is `async def`, which a step cannot await: write it "
            "with `def`. Steps that wait run on many threads at once when the pipeline is served"
        )
    if reads is not None:
        names = names_of("reads=", reads)
        _check_known(fn, names, columns)
        return Function(fn, names, marks=marks)
    names, keywords, takes_rng = _parameters(fn, target, columns)
    _check_known(fn, (*names, *keywords), columns)
    if takes_rng and RNG in columns:
        raise PlanError(
            f"{describe(fn)} ({locate(fn)}) takes `rng`, which is the row's random generator, but "
            "there is also a column called rng: rename the column"
        )
    for name in sorted(marks.owns - {*names, *keywords}):
        raise PlanError(
            f"{describe(fn)} ({locate(fn)}) is marked @owns({name!r}) but has no parameter of that "
            "name: own only columns that the function reads"
        )
    return Function(fn, (*names, *keywords), keywords, takes_rng, marks)


def _parameters(
    fn: Any, target: Any, columns: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        raise PlanError(
            f"the parameters of {describe(fn)} cannot be read, so silva cannot tell which columns "
            f"it needs: wrap it (lambda x: {describe(fn)}(x)) or name them with reads=('x',). "
            f"Columns: {_listed(columns)}"
        ) from None
    if isinstance(fn, Stateful):
        parameters = parameters[1:]
    if isinstance(fn, functools.partial):
        parameters = [p for p in parameters if p.name not in fn.keywords]
    positional: list[str] = []
    keywords: list[str] = []
    takes_rng = False
    by_keyword = False  # once a parameter has been left out, the rest cannot be positional
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind is p.VAR_POSITIONAL else "**"
            raise PlanError(
                f"{describe(fn)} ({locate(fn)}) has the parameter {star}{p.name}: each parameter "
                f"names one column, so name them, or use reads=(…). Columns: {_listed(columns)}"
            )
        if p.name == RNG or (p.default is not p.empty and p.name not in columns):
            takes_rng = takes_rng or p.name == RNG
            by_keyword = True
        elif p.kind is p.KEYWORD_ONLY or (by_keyword and p.kind is not p.POSITIONAL_ONLY):
            keywords.append(p.name)
        elif by_keyword:
            raise PlanError(
                f"{describe(fn)} ({locate(fn)}): `rng` and parameters with a default come after "
                "positional-only parameters"
            )
        else:
            positional.append(p.name)
    return tuple(positional), tuple(keywords), takes_rng


def _check_known(fn: Any, names: tuple[str, ...], columns: tuple[str, ...]) -> None:
    unknown = [n for n in names if n not in columns]
    if unknown:
        raise PlanError(
            f"{describe(fn)} ({locate(fn)}) reads {_listed(unknown)}, but the columns here are "
            f"{_listed(columns)}{_cure(unknown, names)}"
        )


def _cure(unknown: list[str], names: tuple[str, ...]) -> str:
    if not WHOLE_ROWS.intersection(unknown):
        return "; reads='…' names the column that it gets" if len(names) == 1 else ""
    return (
        ": the parameters of a function are the columns that it reads, lambda x: x + 1; "
        "map_rows(function) takes a function of the whole row"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in names) or "(none)"


def describe(fn: Any) -> str:
    """A short name: `lambda`, `module.function`, `Class`."""
    if isinstance(fn, Stateful):
        return fn.cls.__qualname__
    if isinstance(fn, functools.partial):
        return f"partial({describe(fn.func)})"
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return "lambda" if name.endswith("<lambda>") else name.rsplit("<locals>.", 1)[-1]


def locate(fn: Any) -> str:
    """`file.py:12`, where the function was written; `built-in name` if it is not written in
    Python."""
    if isinstance(fn, Stateful):
        fn = fn.cls
    if isinstance(fn, functools.partial):
        return locate(fn.func)
    target = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(target, "__code__", None) or _code_of_class(
        target if isinstance(target, type) else type(target)
    )
    return (
        f"built-in {describe(fn)}" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    )


def _code_of_class(cls: type) -> Any:
    """The code of a method, for the file and line of its class: of `__call__`, or else of any."""
    methods = [vars(cls).get("__call__"), *vars(cls).values()]
    return next((m.__code__ for m in methods if hasattr(m, "__code__")), None)
