"""Libraries as fingerprints know them: functions, classes and objects that are not the user's own.

A function or class of a library counts by its name, its module and the version of the library; an
object counts by a stable description where there is one for its type.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from silva.plan.class_tags import PACKAGE, home_of


def is_library(value: Any) -> bool:
    """Whether a function or class belongs to a library."""
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module != "__main__" and package_of(module) is not None


def home(value: Any) -> str:
    """The module and version of a library's function or class; those of silva may move freely."""
    module: str = value.__module__
    return library(home_of(value) if module.partition(".")[0] == "silva" else module)


def library(module: str) -> str:
    """A module with the library that it belongs to."""
    return f"{module}@{package_of(module) or 'local'}"


def describe(value: Any) -> Any:
    """What identifies an object of a library's class; None where nothing stable is known."""
    describer = _DESCRIBERS.get(_top_module(value))
    return None if describer is None else describer(value)


def has_description(value: Any) -> bool:
    """Whether objects of this library may have a stable description."""
    return _top_module(value) in _DESCRIBERS


def _top_module(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _path(value: Any) -> Any:
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
    "pathlib": _path,
    "re": _pattern,
    "torch": _tensor,
    "datetime": repr,
    "decimal": repr,
    "fractions": repr,
    "uuid": repr,
}


@functools.cache
def package_of(module: str) -> str | None:
    """The installed distribution that a module belongs to, with its version; None for the user's
    own code."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "builtins":
        return f"python{sys.version_info.major}.{sys.version_info.minor}"
    if top == "silva":
        return PACKAGE
    found = sys.modules.get(top)
    if is_installed(getattr(found, "__file__", None) or ""):
        version = getattr(found, "__version__", None)
        if not isinstance(version, str):
            version = _installed_version(top)
        return f"{top}=={version}"
    return None


def is_installed(file: str) -> bool:
    """Whether a file lies where installed distributions do."""
    return "site-packages" in file or "dist-packages" in file


def _installed_version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "0"
