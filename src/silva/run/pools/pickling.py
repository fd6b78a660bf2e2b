"""Pickles stages for worker processes; if that fails, names the variable at fault."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from silva.errors import PicklingError
from silva.physical.stage.stage import Runs, Stage
from silva.plan.function import Stateful, locate
from silva.run.pools.task import functions_of

_DEEP = 4
"""The depth to which functions within functions are searched."""


def pickle_stage(stage: Runs) -> bytes:
    """Pickles a stage; raises an error that names the variable at fault."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(stage)
    except Exception as error:
        raise PicklingError(
            f"`{stage.label}` cannot be sent to a worker process: {_culprit(stage) or error}. "
            "Build it in the worker with @sv.stateful, or use loader(backend='threads')"
        ) from error
    return data


def _culprit(stage: Runs) -> str | None:
    """The variable of a function, or the part of the source, that cannot be pickled."""
    for function in functions_of(stage):
        if not _pickles(function.fn):
            return _name(function.fn, _DEEP) or f"the function at {function.where}"
    read = stage.read if isinstance(stage, Stage) else None
    if read is not None and not _pickles(read.source):
        return f"its source, {read.source.describe()}"
    return None


def _name(fn: Any, depth: int) -> str | None:
    """The first variable of `fn` that cannot be pickled, and the function that it belongs to."""
    for name, value in _variables(fn):
        if _pickles(value):
            continue
        inner = _name(value, depth - 1) if depth and _is_callable_of_theirs(value) else None
        return inner or f"{name} ({type(value).__name__}) of {_whose(fn)}"
    return None


def _whose(fn: Any) -> str:
    if isinstance(fn, Stateful):
        return f"the class at {locate(fn)}"
    if isinstance(fn, types.FunctionType | functools.partial | types.MethodType):
        return f"the function at {locate(fn)}"
    return f"the {type(fn).__name__} at {locate(fn)}"


def _is_callable_of_theirs(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _variables(fn: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with a callable: closure, globals, defaults, bound arguments, attributes."""
    if isinstance(fn, functools.partial):
        yield "the function", fn.func
        yield from ((f"argument {i}", value) for i, value in enumerate(fn.args))
        yield from ((f"the argument {name!r}", value) for name, value in fn.keywords.items())
    elif isinstance(fn, Stateful):
        yield from ((f"argument {i}", value) for i, value in enumerate(fn.args))
        yield from ((f"the argument {name!r}", value) for name, value in fn.kwargs)
    elif isinstance(fn, types.MethodType):
        yield from ((f"the attribute {n!r}", v) for n, v in vars(fn.__self__).items())
    elif isinstance(fn, types.FunctionType):
        yield from _variables_of_function(fn)
    else:
        yield from ((f"the attribute {n!r}", v) for n, v in getattr(fn, "__dict__", {}).items())


def _variables_of_function(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        yield f"the variable {name!r}", cell.cell_contents
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield f"the variable {name!r}", fn.__globals__[name]
    defaults = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    yield from ((f"the default {value!r:.40}", value) for value in defaults)


def _pickles(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  any failure to pickle is the answer
        return False
    return True
