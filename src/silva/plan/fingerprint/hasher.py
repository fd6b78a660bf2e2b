"""The digest of a plan or a value, in a form that does not depend on the process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import struct
import types
from typing import Any

import numpy as np

from silva.columns.column import is_masked_array
from silva.columns.padding import bytes_of, without_padding
from silva.plan.class_tags import Tag, name_of, tag_of
from silva.plan.expr import Call, Expr
from silva.plan.fingerprint.libraries import (
    describe,
    has_description,
    home,
    is_library,
    library,
)
from silva.plan.fingerprint.modules import follow, imported, is_own, sources, used_by
from silva.plan.function import Function, Stateful, Step
from silva.plan.node import Node, Options, Source, walk
from silva.plan.operator import revision_of

_DEEPEST = 150
"""How deep values may be nested to be hashed: each level takes three or four of the thousand calls
that Python allows."""


def fingerprint(node: Node) -> str:
    """The identity of the rows that `node` yields: 32 hex digits."""
    return Hasher().node(node)


def digest(value: Any) -> str:
    """The identity of a plain value: 32 hex digits."""
    hasher = Hasher()
    hasher.add(value, "")
    return hasher.hexdigest()


def column_fingerprints(
    step: Step, inputs: tuple[str, ...], into: tuple[str, ...]
) -> tuple[str, ...]:
    """The identities of derived columns, by the step and the identities of the columns it reads.
    Where a step writes several columns, each is identified by all of their names and its place."""
    if len(into) == 1:
        return (digest((step, inputs)),)
    return tuple(digest((step, inputs, into, place)) for place in range(len(into)))


def opaque_parts(value: Any) -> list[str]:
    """The names of the parts of `value` that cannot be hashed stably; empty if there are none."""
    hasher = Hasher()
    hasher.add(value, "")
    return hasher.opaque


def says_only_how(node: Node) -> bool:
    """Whether a node only says how the pipeline runs, and changes nothing about the stream."""
    return isinstance(node, Options) and not any(_changes_rows(*pair) for pair in node.values)


def _changes_rows(option: str, value: Any) -> bool:
    """Whether an option changes what a pipeline yields, and not only how it runs."""
    return option == "seed" or (option, value) == ("fidelity", "close")


def _tag(node: Node) -> Tag:
    tag = tag_of(node)
    if tag is None:
        raise TypeError(
            f"{type(node).__qualname__} is a node without a tag: see plan/class_tags.py"
        )
    return tag


class Hasher:
    """Feeds values into one digest. `name` is what the user would call the value: the variable,
    attribute or item that holds it."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._keep: list[Any] = []
        self._depth = 0
        self.opaque: list[str] = []
        """The names of values that were hashed by their address, for want of anything stable."""

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def node(self, node: Node) -> str:
        if says_only_how(node):
            return fingerprint(node.inputs[0])
        for child in node.inputs:
            self._write("in", fingerprint(child).encode())
        tag = _tag(node)
        self._write("node", tag.name.encode())
        if isinstance(node, Source):
            self._write("source", node.source.fingerprint().encode())
        for attribute, word in tag.fields:
            value = getattr(node, attribute)
            if value is None and attribute in tag.optional:
                continue
            if isinstance(node, Options):
                value = tuple(pair for pair in value if _changes_rows(*pair))
            self._write("field", word.encode())
            self.add(value, word)
        return self.hexdigest()

    def _write(self, kind: str, data: bytes | memoryview) -> None:
        self._digest.update(struct.pack("<4sQ", kind.encode()[:4], len(data)))
        self._digest.update(data)

    def add(self, value: Any, name: str) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | type(...)):
            self._write(type(value).__name__, repr(value).encode())
        elif isinstance(value, bytes | bytearray):
            self._write("byte", bytes(value))
        elif isinstance(value, np.generic):
            self._write("npsc", value.dtype.str.encode() + bytes_of(value))
        elif isinstance(value, np.dtype):
            self._write("dtyp", value.str.encode())
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]).encode())
        else:
            self._seen[id(value)] = len(self._seen)
            self._keep.append(value)  # ids stay unique while we hash
            self._depth += 1
            if self._depth > _DEEPEST:
                self._add_address(value, name)
            else:
                self._add_object(value, name)
            self._depth -= 1

    def _add_object(self, value: Any, name: str) -> None:
        match value:
            case np.ndarray() if value.dtype != object:
                self._add_array(value, name)
            case tuple() | list() | dict() | set() | frozenset():
                self._add_container(value, name)
            case types.CodeType():
                self._add_code(value, name)
            case types.ModuleType():
                self._add_module(value)
            case Node():
                self._write("plan", fingerprint(value).encode())
                for node in walk(value):
                    self.opaque += opaque_parts(node.runs)
            case Function():
                self.add((value.reads, value.keywords, value.takes_rng), name)
                self.add((value.marks.batched, value.marks.batch_size), name)
                self.add(value.fn, name)
            case Stateful():
                self.add((value.cls, value.args, value.kwargs), name)
            case Expr():
                self.add(value.term, name)
            case functools.partial():
                self.add((value.func, value.args, value.keywords), name)
            case types.MethodType():
                self.add(value.__func__, name)
                self.add(value.__self__, f"{name}.__self__")
            case types.FunctionType():
                self._add_function(value, name)
            case type():
                self._add_class(value, name)
            case _:
                self._add_instance(value, name)

    def _add_address(self, value: Any, name: str) -> None:
        """An object that nothing stable is known of."""
        self.opaque.append(name or type(value).__qualname__)
        self._write("opaq", f"{type(value).__qualname__}:{id(value)}".encode())

    def _add_array(self, array: np.ndarray, name: str) -> None:
        dtype = array.dtype.descr if array.dtype.names else array.dtype.str
        self._write("arry", f"{dtype}{array.shape}".encode())
        flat = without_padding(np.ascontiguousarray(array)).reshape(-1)
        self._write("data", flat.view(np.uint8).data)  # a view: the array may be very large
        if is_masked_array(array):
            self.add(np.ma.getmaskarray(array), name)

    def _add_container(self, value: Any, name: str) -> None:
        if isinstance(value, tuple | list):
            self._write(type(value).__name__, str(len(value)).encode())
            for i, item in enumerate(value):
                self.add(item, f"{name}[{i}]")
        elif isinstance(value, dict):
            self._write("dict", str(len(value)).encode())
            for key, item in value.items():
                self.add(key, name)
                self.add(item, f"{name}[{key!r}]")
        else:
            self._write("set", "".join(sorted(digest(item) for item in value)).encode())

    def _add_module(self, module: types.ModuleType) -> None:
        if is_own(module):
            self._add_sources(module)
        else:
            self._write("modl", library(module.__name__).encode())

    def _add_code(self, code: types.CodeType, name: str) -> None:
        self._write("code", code.co_code)
        self.add((code.co_names, code.co_varnames, code.co_freevars), name)
        self.add(tuple(c for c in code.co_consts if not _is_docstring(code, c)), name)

    def _add_function(self, fn: types.FunctionType, name: str) -> None:
        if is_library(fn):
            self._write("func", f"{home(fn)}.{fn.__qualname__}".encode())
            return
        used = used_by(fn.__code__)
        self.add(fn.__code__, name)
        self.add((fn.__defaults__, fn.__kwdefaults__), name)
        for variable, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            self._write("cell", variable.encode())
            try:
                contents = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            self._add_variable(contents, used.attributes.get(variable), variable)
        for variable in sorted(used.globals):
            if variable in fn.__globals__:
                self._write("glob", variable.encode())
                self._add_variable(fn.__globals__[variable], used.attributes[variable], variable)
        for module in imported(used, fn.__globals__.get("__package__")):
            self._add_sources(module)

    def _add_variable(self, value: Any, paths: set[tuple[str, ...]] | None, name: str) -> None:
        """The value of a variable. Of a module of the user's own, only the attributes that the code
        reads from it."""
        if not (isinstance(value, types.ModuleType) and is_own(value)):
            paths = None
        for path in sorted(paths or {()}):
            self.add(follow(value, path), ".".join((name, *path)))

    def _add_sources(self, module: types.ModuleType | str) -> None:
        for name, source in sources(module):
            self._write("own", name.encode())
            if source is None:
                self.opaque.append(name)
                self._write("opaq", str(id(module)).encode())
            else:
                self._write("byte", source)

    def _add_class(self, cls: type, name: str) -> None:
        self._write("clss", name_of(cls).encode())
        if is_library(cls):
            self._write("libr", home(cls).encode())
            return
        for base in cls.__bases__:
            self.add(base, name)
        for key in sorted(vars(cls)):
            if key in ("__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__"):
                continue
            member = vars(cls)[key]
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            if isinstance(member, property):
                member = member.fget
            if isinstance(member, functools.cached_property):
                member = member.func
            if callable(member) or _is_constant(member, key):
                self._write("memb", key.encode())
                self.add(member, f"{name}.{key}")

    def _add_instance(self, value: Any, name: str) -> None:
        tag = tag_of(value)
        if tag is not None:
            self._add_tagged(value, tag, name)
        elif dataclasses.is_dataclass(value):
            self._write("data", type(value).__qualname__.encode())
            if not is_library(type(value)):
                self.add(type(value), name)  # its methods may be the step
            for field in dataclasses.fields(value):
                self.add(getattr(value, field.name), f"{name}.{field.name}")
        elif isinstance(value, types.BuiltinFunctionType | np.ufunc):
            module = getattr(value, "__module__", None) or "builtins"
            self._write("buil", f"{library(module)}.{value.__name__}".encode())
        elif is_library(type(value)) and (described := describe(value)) is not None:
            kind = type(value)
            self._write("libo", f"{library(kind.__module__)}{kind}".encode())
            self.add(described, name)
        else:
            self._add_attributes(value, name)

    def _add_tagged(self, value: Any, tag: Tag, name: str) -> None:
        """An object of silva's own, by the words that its class declares."""
        self._write("data", tag.name.encode())
        for attribute, word in tag.fields:
            if getattr(value, attribute) is not None or attribute not in tag.optional:
                self.add(getattr(value, attribute), f"{name}.{word}")
        if isinstance(value, Call) and (revision := revision_of(value.op)):
            self._write("revi", str(revision).encode())

    def _add_attributes(self, value: Any, name: str) -> None:
        """An object by its class and its attributes; by its address where it has none."""
        state = getattr(value, "__dict__", None)
        if state is None or inspect.isgenerator(value):
            self._add_address(value, name)
            return
        self.add(type(value), name)
        for key in sorted(state):
            self._write("attr", key.encode())
            self.add(state[key], f"{name}.{key}")


def _is_docstring(code: types.CodeType, constant: Any) -> bool:
    """Whether a constant is the docstring of its code: comprehensions and lambdas have none."""
    first = bool(code.co_consts) and constant is code.co_consts[0]
    return first and isinstance(constant, str) and not code.co_name.startswith("<")


def _is_constant(member: Any, key: str) -> bool:
    """Whether a member of a class is data that its methods may read. What Python itself adds
    (`__annotations__`, `_member_map_`) is not, unless it is a plain value."""
    if isinstance(member, types.ModuleType):
        return is_own(member)
    if isinstance(member, int | float | str | bytes | tuple):
        return True
    if key.startswith("_") and key.endswith("_"):
        return False
    if isinstance(member, dict | list | set | frozenset | bytearray | np.ndarray | np.generic):
        return True
    return has_description(member)
