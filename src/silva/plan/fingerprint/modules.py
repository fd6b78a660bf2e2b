"""Modules of the user's own, and what a function uses of them.

Such a module counts by the attributes that the function reads from it. Where these are not known
(the module is passed on, or imported within a function), it counts by its source and that of the
user's modules that it imports. Nothing is imported to find out, so a fingerprint does not depend on
what the process has loaded so far.
"""

from __future__ import annotations

import dis
import importlib.util
import sys
import types
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from typing import Any

from silva.plan.fingerprint.libraries import is_installed, package_of


@dataclass
class Used:
    """The names that code and the functions within it look up."""

    globals: set[str] = field(default_factory=set)
    attributes: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    """The attributes read from each global or enclosing variable: `pkg.mod.f` reads `("mod", "f")`
    of `pkg`; `()` where the value itself is used."""
    imports: set[tuple[int, str, tuple[str, ...]]] = field(default_factory=set)
    """Level, module and names of each import."""


def used_by(code: types.CodeType) -> Used:
    """The names that code looks up.

    >>> used_by((lambda x: np.linalg.norm(x)).__code__).attributes
    {'np': {('linalg', 'norm')}}
    """
    found = Used()
    _find_names(code, found)
    return found


def _find_names(code: types.CodeType, found: Used) -> None:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level, names = steps[place - 2].argval, steps[place - 1].argval
            found.imports.add((level, step.argval, names or ()))
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.globals.add(step.argval)
        elif step.opname not in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            continue
        path = []
        for after in steps[place + 1 :]:
            if after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path.append(after.argval)
        found.attributes.setdefault(step.argval, set()).add(tuple(path))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _find_names(constant, found)


def is_own(module: types.ModuleType) -> bool:
    """Whether a module is the user's own, and not a script, a notebook or a library."""
    about = vars(module)  # getattr could run code of the module
    return _is_own(module.__name__, about.get("__spec__"), about.get("__file__"))


def _is_own(name: str, spec: ModuleSpec | None, file: str | None = None) -> bool:
    if _is_known(name):
        return False
    places = [file, spec and spec.origin, *((spec and spec.submodule_search_locations) or ())]
    named = [place for place in places if place]
    return not named or not all(map(is_installed, named))


def _is_known(name: str) -> bool:
    """Whether the name alone shows that a module is not the user's own."""
    top = name.partition(".")[0]
    if name in ("__main__", "__mp_main__") or top == "silva" or top in sys.stdlib_module_names:
        return True
    return top in sys.modules and package_of(name) is not None


def follow(value: Any, path: tuple[str, ...]) -> Any:
    """The value that a path of attributes leads to: the first that is not a module of the user's
    own, or the last module from which the path leads no further."""
    for attribute in path:
        if not (isinstance(value, types.ModuleType) and is_own(value)):
            break
        try:
            value = getattr(value, attribute)
        except Exception:  # noqa: BLE001 - a module-level __getattr__ can do anything
            break
    return value


def imported(used: Used, package: str | None) -> list[str]:
    """The user's own modules that code imports while it runs."""
    names: set[str] = set()
    for level, module, asked in used.imports:
        try:
            name = importlib.util.resolve_name("." * level + module, package)
        except ImportError:
            continue  # it would also fail when the code runs
        if asked:
            names |= {name} | {f"{name}.{each}" for each in asked}
        else:
            parts = name.split(".")
            names |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    unknown = sorted(name for name in names if not _is_known(name))
    return [name for name in unknown if (spec := _find(name)) is not None and _is_own(name, spec)]


def sources(module: types.ModuleType | str) -> list[tuple[str, bytes | None]]:
    """The source of a module and of all the user's own modules that it imports, by name; None for
    one that cannot be read."""
    name = module if isinstance(module, str) else module.__name__
    todo = {name: _find(module) if isinstance(module, str) else vars(module).get("__spec__")}
    done: dict[str, bytes | None] = {}
    while todo:
        name, spec = todo.popitem()
        done[name], imports = (None, []) if spec is None else _read(spec)
        todo |= {each: _find(each) for each in imports if each not in done}
    return sorted(done.items())


_SPECS_READ: dict[str, tuple[ModuleSpec, bytes | None, list[str]]] = {}


def _read(spec: ModuleSpec) -> tuple[bytes | None, list[str]]:
    """A module's source and the user's modules that it imports. It is read once per import of the
    module: editing the file of a loaded module changes nothing about this process."""
    known = _SPECS_READ.get(spec.name)
    if known is not None and known[0] is spec:
        return known[1:]
    data = _source(spec)
    try:
        code = compile(data or b"", spec.origin or spec.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # compiled
        imports = []
    else:
        imports = imported(used_by(code), spec.parent)
    _SPECS_READ[spec.name] = (spec, data, imports)
    return data, imports


def _source(spec: ModuleSpec) -> bytes | None:
    if spec.origin is None and spec.submodule_search_locations is not None:
        return b""  # a folder without __init__.py
    try:
        data: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return None
    return data


def _find(name: str) -> ModuleSpec | None:
    """How a module is loaded, without loading it or the package that it is in."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__spec__", None)
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        above = _find(parent)
        path = None if above is None else above.submodule_search_locations
        if path is None:
            return None
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
