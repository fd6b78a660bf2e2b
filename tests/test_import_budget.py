"""A new Python reads its first batch soon: what that may load, counted in modules, not in seconds.

Worker processes and short scripts pay for every module again. Whoever needs one more module, or a
library, imports it where it is used; whoever cannot raises the budget here, and says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

MODULES = 172
"""Modules of silva that a first batch may load. Every rule is a module: plans are rewritten before
the first batch, and the planner looks on from then on. Every method of an expression may be given
a choice, so what says that is loaded with expressions."""
DATACLASSES = 180
"""Dataclasses among them: each takes 0.25 ms to define, as long as a small module.
Files that were joined load together: fewer modules, a few more classes."""

SCRIPT = """
import json, sys
import silva as sv

rows = sv.from_columns({"x": range(4)}).derive(y=lambda x: x + 1)
next(iter(rows.batch(2).loader(workers=0)))
modules = [name for name in sys.modules if name.partition(".")[0] == "silva"]
dataclasses = {
    f"{cls.__module__}.{cls.__qualname__}": cls.__doc__
    for name in modules
    for cls in vars(sys.modules[name]).values()
    if isinstance(cls, type) and "__dataclass_fields__" in vars(cls) and cls.__module__ == name
}
libraries = {
    name.partition(".")[0]
    for name, module in sys.modules.items()
    if "site-packages" in (getattr(module, "__file__", None) or "")
}
found = {"modules": modules, "dataclasses": dataclasses, "libraries": sorted(libraries)}
json.dump(found | {"all": list(sys.modules)}, sys.stdout)
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """What a new Python has loaded once it has read its first batch."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_first_batch_loads_few_modules(loaded: dict[str, Any]) -> None:
    assert len(loaded["modules"]) <= MODULES
    assert len(loaded["dataclasses"]) <= DATACLASSES


def test_a_first_batch_loads_no_library_but_numpy(loaded: dict[str, Any]) -> None:
    assert set(loaded["libraries"]) <= {"numpy", "silva", "_distutils_hack"}


@pytest.mark.parametrize(
    "module",
    [
        "numpy.ma", "importlib.metadata", "email", "subprocess", "socket", "tempfile", "uuid",
        "silva.operators.image", "silva.store", "silva.service", "silva.insight",
    ],
)  # fmt: skip
def test_a_first_batch_loads_no_slow_module_that_it_does_not_use(
    loaded: dict[str, Any], module: str
) -> None:
    assert module not in loaded["all"]


def test_every_dataclass_says_what_it_is(loaded: dict[str, Any]) -> None:
    """Where a dataclass has no docstring, Python makes one of its signature, which takes as long
    as all of its methods."""
    without = [
        name
        for name, doc in loaded["dataclasses"].items()
        if not doc or doc.startswith(f"{name.rpartition('.')[2]}(")
    ]
    assert without == []
