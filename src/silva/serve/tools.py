"""Tools: functions that a model may call, and nothing else.

A call is JSON in what the model says: `{"name": "add", "arguments": {"a": 1, "b": 2}}`. Only the
functions of the list are called, with arguments that fit their annotations. What a model says is
data: it is decoded as JSON of these types, and never evaluated.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from silva.errors import PlanError, SilvaError
from silva.plan.arguments import explains, flag
from silva.plan.class_tags import tagged
from silva.plan.function import Marks, describe, locate

_OBJECT = re.compile(r'\{\s*["}]')
"""Where a JSON object begins."""
_FIELD = re.compile(r"\{([^\W\d]\w*)\}")
"""What a template would take for a column."""


class ToolError(SilvaError):
    """A model called a tool that there is not, or with arguments that do not fit."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    """A call as a model writes it."""

    name: str
    arguments: dict[str, msgspec.Raw] = {}


@tagged("Tools", "functions")
@dataclass(frozen=True)
class Tools:
    """The functions that a model may call."""

    functions: tuple[Callable[..., Any], ...]

    def __getstate__(self) -> dict[str, Any]:
        return {"functions": self.functions}

    def __repr__(self) -> str:
        return f"tools({', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(function.__name__ for function in self.functions)

    @functools.cached_property
    def arguments(self) -> tuple[type[msgspec.Struct], ...]:
        """The arguments of each, as types that JSON is decoded to."""
        return tuple(map(_arguments_of, self.functions))

    @property
    def prompt(self) -> str:
        """What a model must know to call them, as a part of a template."""
        every = zip(self.functions, self.arguments, strict=True)
        shown = [_shown(function, arguments) for function, arguments in every]
        text = (
            'To call a tool, say {"name": "…", "arguments": {…}} and nothing else. Tools:\n'
            + "\n".join(json.dumps(one, ensure_ascii=False) for one in shown)
        )
        return _FIELD.sub(r"{{\1}}", text)

    def call(self, column: str, *, feed_back: bool = False) -> ToolStep:
        """A step that makes the call in a text: `derive(result=tools.call("said"))`.

        It gives what the function returned, as text: a string as it is, anything else as JSON. A
        text without a JSON object is no call, and gives None. A call of another name, of two tools,
        or with arguments that do not fit fails the row; with `feed_back` it gives the error as
        text, so that a model in a loop can do better. What the function raises fails the row.
        """
        if not isinstance(column, str) or not column.isidentifier():
            raise PlanError(f"tools.call(column) takes the name of a column, not {column!r}")
        return ToolStep(self, column, flag("tools.call(feed_back=…)", feed_back))


@explains
def tools(*functions: Callable[..., Any]) -> Tools:
    """The functions that a model may call, by their names. Each parameter has an annotation.

    >>> import silva as sv
    >>> def add(a: int, b: int) -> int:
    ...     "Adds two numbers."
    ...     return a + b
    >>> step = sv.tools(add).call("said")
    >>> calls = sv.requests("said").derive(result=step)
    >>> calls.ask(said='{"name": "add", "arguments": {"a": 1, "b": 2}}')["result"]
    '3'
    """
    made = Tools(functions)
    if not functions:
        raise PlanError("tools takes the functions that a model may call: sv.tools(search, add)")
    made.arguments  # noqa: B018  refuses what a model cannot call
    twice = [name for name in made.names if made.names.count(name) > 1]
    if twice:
        raise PlanError(f"tools has two functions called {twice[0]!r}: a model calls them by name")
    return made


@tagged("ToolStep", "tools column feed_back")
@dataclass(frozen=True)
class ToolStep:
    """The function that makes the call in a text."""

    tools: Tools
    column: str
    feed_back: bool

    def __post_init__(self) -> None:
        functions = self.tools.functions
        marks = [getattr(function, "__silva__", Marks()) for function in functions]
        vars(self).update(
            __qualname__=repr(self.tools),
            __wrapped__=functions[0],  # errors name its file and line
            __silva__=Marks(impure=any(mark.impure for mark in marks)),
            __signature__=inspect.Signature(
                [inspect.Parameter(self.column, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
            ),
        )

    def __call__(self, said: Any) -> str | None:
        try:
            found = self._read(said)
        except ToolError as error:
            if self.feed_back:
                return f"error: {error}"
            raise
        if found is None:
            return None
        function, arguments = found
        result = function(**arguments)
        if isinstance(result, str):
            return result
        return msgspec.json.encode(result, enc_hook=_plain).decode()

    def _read(self, said: Any) -> tuple[Callable[..., Any], dict[str, Any]] | None:
        """The function that a text calls, and its arguments; None if it calls none."""
        if not isinstance(said, str):
            raise ToolError(f"a tool call is read from text, not {type(said).__name__}")
        text = _object_in(said)
        if text is None:
            return None
        try:
            call = msgspec.json.decode(text, type=_Call)
        except msgspec.DecodeError as error:
            raise ToolError(f"this is no tool call: {error}") from None
        names = self.tools.names
        if call.name not in names:
            raise ToolError(f"there is no tool {call.name!r}; there are {', '.join(names)}")
        number = names.index(call.name)
        given, kind = msgspec.json.encode(call.arguments), self.tools.arguments[number]
        try:
            made = msgspec.json.decode(given, type=kind)
        except msgspec.DecodeError as error:
            raise ToolError(f"wrong arguments for {call.name}: {error}") from None
        return self.tools.functions[number], msgspec.structs.asdict(made)


def _object_in(said: str) -> str | None:
    """The JSON object in a text: models put words and fences around it."""
    begin = _OBJECT.search(said)
    if begin is None:
        return None
    try:
        end = json.JSONDecoder().raw_decode(said, begin.start())[1]
    except (ValueError, RecursionError):
        raise ToolError("this is no tool call: its JSON is broken or incomplete") from None
    if _OBJECT.search(said, end):
        raise ToolError("these are two tool calls: make one at a time")
    return said[begin.start() : end]


def _arguments_of(function: Callable[..., Any]) -> type[msgspec.Struct]:
    """The arguments of a tool, as a type that JSON is decoded to."""
    if not inspect.isfunction(function) or not function.__name__.isidentifier():
        raise PlanError(
            f"tools takes functions written with def, which models call by name, not {function!r}"
        )
    where = f"the tool {describe(function)} ({locate(function)})"
    if inspect.iscoroutinefunction(function):
        raise PlanError(f"{where} is `async def`, which a step cannot await: write it with `def`")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise PlanError(f"{where} has an annotation that is not known: {error}") from None
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise PlanError(f"{where}: models pass arguments by name; name each parameter")
        if parameter.name not in hints:
            raise PlanError(f"{where}: annotate {parameter.name!r}, so that calls can be checked")
        has_default = parameter.default is not parameter.empty
        kind = hints[parameter.name]
        fields.append(
            (parameter.name, kind, msgspec.field(default_factory=_always(parameter.default)))
            if has_default
            else (parameter.name, kind)
        )
    try:
        made = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        msgspec.json.schema(made)
    except TypeError as error:
        raise PlanError(f"{where} has an annotation that is no JSON: {error}") from None
    return made


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a tool returned {type(value).__name__}, which has no JSON form")


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _shown(function: Callable[..., Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A tool as models know it."""
    schema = msgspec.json.schema(kind)
    definitions: dict[str, Any] = schema["$defs"]
    arguments = definitions.pop("Arguments")
    arguments.pop("title", None)
    if definitions:
        arguments["$defs"] = definitions
    about = inspect.getdoc(function) or ""
    return {"name": function.__name__, "description": about, "parameters": arguments}
