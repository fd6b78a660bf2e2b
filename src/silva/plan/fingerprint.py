"""Stable identities: equal meaning, equal hash, in every process.

A function's fingerprint covers its code, defaults, closure, and the globals and helper functions
that it reaches; of libraries, the name and version. What cannot be hashed stably makes the
function *opaque*: it is identified within this process only, and `opaque_parts` names the culprit.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from silva.plan.expr import Call, Expr
from silva.plan.function import Function, Stateful
from silva.plan.node import Cache, Node, Options, Shuffle, Source, walk


def fingerprint(node: Node) -> str:
    """The identity of what `node` gives: 32 hex digits."""
    return _Hasher().node(node)


def says_only_how(node: Node) -> bool:
    """Whether a node changes nothing about the stream."""
    return isinstance(node, Options) and not any(_means(*pair) for pair in node.values)


def _means(name: str, value: Any) -> bool:
    """Whether an option changes what a pipeline gives, and not only how it is run."""
    return name == "seed" or (name, value) == ("fidelity", "close")


def opaque_parts(value: Any) -> list[str]:
    """The names of what could not be hashed stably within `value`; empty when all could."""
    hasher = _Hasher()
    hasher.add(value, "")
    return hasher.opaque


class _Hasher:
    """Feeds values into one digest, in a form that does not depend on the process."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._keep: list[Any] = []
        self.opaque: list[str] = []

    def node(self, node: Node) -> str:
        if says_only_how(node):
            return fingerprint(node.inputs[0])
        for child in node.inputs:
            self._write("in", fingerprint(child).encode())
        self._write("node", node.verb.encode())
        if isinstance(node, Source):
            self._write("source", node.source.fingerprint().encode())
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, Node) or field.name in ("many", "source"):
                continue
            if isinstance(node, Cache) or (isinstance(node, Source) and field.name == "columns"):
                continue  # where rows are kept and which columns are read is how, not what
            if isinstance(node, Shuffle) and field.name in ("by", "most") and value is None:
                continue  # states and caches from before there were groups stay valid
            if isinstance(node, Options):
                value = tuple(pair for pair in value if _means(*pair))
            self._write("field", field.name.encode())
            self.add(value, field.name)
        return self._digest.hexdigest()

    def _write(self, kind: str, data: bytes | memoryview) -> None:
        self._digest.update(struct.pack("<4sQ", kind.encode()[:4], len(data)))
        self._digest.update(data)

    def add(self, value: Any, name: str) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | type(...)):
            self._write(type(value).__name__, repr(value).encode())
        elif isinstance(value, bytes | bytearray):
            self._write("byte", bytes(value))
        elif isinstance(value, np.generic):
            self._write("npsc", value.dtype.str.encode() + value.tobytes())
        elif isinstance(value, np.dtype):
            self._write("dtyp", value.str.encode())
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]).encode())
        else:
            self._seen[id(value)] = len(self._seen)
            self._keep.append(value)  # ids stay unique while we hash
            self._add_object(value, name)

    def _add_object(self, value: Any, name: str) -> None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            self._write("arry", f"{value.dtype.str}{value.shape}".encode())
            flat = np.ascontiguousarray(value).reshape(-1)
            self._write("data", flat.view(np.uint8).data)  # it may be very large
        elif isinstance(value, tuple | list):
            self._write(type(value).__name__, str(len(value)).encode())
            for i, item in enumerate(value):
                self.add(item, f"{name}[{i}]")
        elif isinstance(value, dict):
            self._write("dict", str(len(value)).encode())
            for key, item in value.items():
                self.add(key, name)
                self.add(item, f"{name}[{key!r}]")
        elif isinstance(value, set | frozenset):
            self._write("set", "".join(sorted(digest(item) for item in value)).encode())
        elif isinstance(value, types.CodeType):
            self._add_code(value, name)
        elif isinstance(value, types.ModuleType):
            self._write("modl", _library(value.__name__).encode())
        elif isinstance(value, Node):
            self._write("plan", fingerprint(value).encode())
            for node in walk(value):
                self.opaque += opaque_parts(getattr(node, "step", None))
        elif isinstance(value, Function):
            self.add((value.reads, value.keywords, value.takes_rng), name)
            self.add((value.marks.batched, value.marks.batch_size), name)
            self.add(value.fn, name)
        elif isinstance(value, Stateful):
            self.add((value.cls, value.args, value.kwargs), name)
        elif isinstance(value, Expr):
            self.add(value.term, name)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords), name)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__, name)
            self.add(value.__self__, f"{name}.__self__")
        elif isinstance(value, types.FunctionType):
            self._add_function(value, name)
        elif isinstance(value, type):
            self._add_class(value, name)
        elif dataclasses.is_dataclass(value):
            self._write("data", type(value).__qualname__.encode())
            for field in dataclasses.fields(value):
                if isinstance(value, Call) and field.name == "draw" and value.draw is None:
                    continue  # a plan as written has the identity of what was written
                self.add(getattr(value, field.name), f"{name}.{field.name}")
        elif isinstance(value, types.BuiltinFunctionType) or _is_library(type(value)):
            self._add_library_object(value, name)
        else:
            self._add_instance(value, name)

    def _add_code(self, code: types.CodeType, name: str) -> None:
        self._write("code", code.co_code)
        self.add((code.co_names, code.co_varnames, code.co_freevars), name)
        self.add(tuple(c for c in code.co_consts if not _is_docstring(code, c)), name)

    def _add_function(self, fn: types.FunctionType, name: str) -> None:
        if _is_library(fn):
            self._write("func", f"{_library(fn.__module__)}.{fn.__qualname__}".encode())
            return
        self.add(fn.__code__, name)
        self.add((fn.__defaults__, fn.__kwdefaults__), name)
        for variable, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            self._write("cell", variable.encode())
            try:
                contents = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            self.add(contents, variable)
        for variable in sorted(_globals_used(fn.__code__)):
            if variable in fn.__globals__:
                self._write("glob", variable.encode())
                self.add(fn.__globals__[variable], variable)

    def _add_class(self, cls: type, name: str) -> None:
        self._write("clss", cls.__qualname__.encode())
        if _is_library(cls):
            self._write("libr", _library(cls.__module__).encode())
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
            if callable(member) or isinstance(member, int | float | str | bytes | tuple):
                self._write("memb", key.encode())
                self.add(member, f"{name}.{key}")

    def _add_library_object(self, value: Any, name: str) -> None:
        """An object of a library's class: by its own stable description, if it has one."""
        if isinstance(value, types.BuiltinFunctionType | np.ufunc):
            module = getattr(value, "__module__", None) or "builtins"
            self._write("buil", f"{_library(module)}.{value.__name__}".encode())
            return
        describe = _DESCRIBERS.get(type(value).__module__.partition(".")[0])
        if describe is not None and (described := describe(value)) is not None:
            self._write("libo", f"{_library(type(value).__module__)}{type(value)}".encode())
            self.add(described, name)
            return
        self._add_instance(value, name)

    def _add_instance(self, value: Any, name: str) -> None:
        state = getattr(value, "__dict__", None)
        if state is None or inspect.isgenerator(value):
            self.opaque.append(name or type(value).__qualname__)
            self._write("opaq", f"{type(value).__qualname__}:{id(value)}".encode())
            return
        self.add(type(value), name)
        for key in sorted(state):
            self._write("attr", key.encode())
            self.add(state[key], f"{name}.{key}")


def _path_like(value: Any) -> Any:
    return str(value) if hasattr(value, "__fspath__") else None


def _pattern(value: Any) -> Any:
    return (value.pattern, value.flags) if hasattr(value, "pattern") else None


def _tensor(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if torch is not None and isinstance(value, torch.dtype | torch.device):
        return str(value)
    return None


_DESCRIBERS: dict[str, Callable[[Any], Any]] = {
    "pathlib": _path_like,
    "re": _pattern,
    "torch": _tensor,
    "datetime": repr,
    "decimal": repr,
    "fractions": repr,
    "uuid": repr,
}


def digest(value: Any) -> str:
    """The identity of a plain value."""
    hasher = _Hasher()
    hasher.add(value, "")
    return hasher._digest.hexdigest()


def column_fingerprints(
    step: Any, inputs: tuple[str, ...], into: tuple[str, ...]
) -> tuple[str, ...]:
    """The identities of derived columns: what makes them, and the identities of what it reads. A
    step that makes several is asked for them by name, so that their names are part of it."""
    if len(into) == 1:
        return (digest((step, inputs)),)
    return tuple(digest((step, inputs, into, place)) for place in range(len(into)))


def _is_docstring(code: types.CodeType, constant: Any) -> bool:
    return isinstance(constant, str) and bool(code.co_consts) and constant is code.co_consts[0]


def _globals_used(code: types.CodeType) -> set[str]:
    """The names that code looks up as globals; those of attributes are nobody's."""
    loads = (i for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    used = {str(i.argval) for i in loads}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            used |= _globals_used(constant)
    return used


@functools.cache
def _package_of(module: str) -> str | None:
    """The installed distribution that a module belongs to, or None for the user's own code."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "builtins":
        return f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = sys.modules.get(top)
    file = getattr(found, "__file__", None) or ""
    if top == "silva" or "site-packages" in file or "dist-packages" in file:
        version = getattr(found, "__version__", None)
        if not isinstance(version, str):
            version = _installed_version(top)
        return f"{top}=={version}"
    return None


def _installed_version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _is_library(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module != "__main__" and _package_of(module) is not None


def _library(module: str) -> str:
    return f"{module}@{_package_of(module) or 'local'}"
