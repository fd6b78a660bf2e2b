"""What a function reaches in modules of the user's own is part of its fingerprint."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from silva.plan.fingerprint import digest, opaque_parts
from silva.plan.fingerprint.modules import Used, imported, used_by

HELPER = """
import numpy as np
import other
SIZE = 3
def f(x): return other.g(x) + 1
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
class Cls:
    def m(self, x): return f(x)
def unused(x): return x
"""
FILES = {
    "helper.py": HELPER,
    "other.py": "import helper\ndef g(x): return x * 2\ndef back(n): return helper.back(n)\n",
    "pkg/__init__.py": "",
    "pkg/mod.py": HELPER,
    "pkg/near.py": "def late(x):\n    from .mod import f\n    return f(x)\n"
    "def later(x):\n    from . import mod\n    return mod.f(x)\n",
    "folder/mod.py": HELPER,
    "late_only.py": "from helper import f\n",
}
FORMS = """
import json, sys
import helper, folder.mod, pkg.mod, pkg.mod as pm, pkg.near
from helper import Cls
from silva.plan.fingerprint import digest

class Steps:
    def __call__(self, x): return helper.f(x)
class Holder:
    def __init__(self): self.helper = helper
    def __call__(self, x): return self.helper.f(x)
class Attribute:
    own = helper
    def __call__(self, x): return self.own.f(x)
def enclosed():
    import helper as h
    return lambda x: h.f(x)
def inside(x):
    import helper
    return helper.f(x)
def named(x):
    from helper import f
    return f(x)
def deep(x):
    import pkg.mod
    return pkg.mod.f(x)
def short(x):
    import pkg.mod as pm
    return pm.f(x)
def member(x):
    from pkg import mod
    return mod.f(x)
def alias(x):
    h = helper
    return h.f(x)
many = eval("lambda x: (" + ",".join(f"n{i}" for i in range(300)) + ", helper.f(x))")

used = {
    "module.f": lambda x: helper.f(x),
    "alias.f": lambda x: pm.f(x),
    "package.module.f": lambda x: pkg.mod.f(x),
    "folder.module.f": lambda x: folder.mod.f(x),
    "class": lambda x: helper.Cls().m(x),
    "callable": Steps(),
    "enclosing variable": enclosed(),
    "comprehension": lambda x: [helper.f(v) for v in x],
    "inner function": lambda x: (lambda v: helper.f(v))(x),
    "many names": many,
    "bound": Cls().m,
    "itself": helper.f,
}
whole = {
    "import": inside, "from import": named, "import package.module": deep,
    "import as": short, "from package import": member, "relative": pkg.near.late,
    "relative module": pkg.near.later, "through modules": lambda x: pkg.near.late(x),
    "another name": alias, "getattr": lambda x, name="f": getattr(helper, name)(x),
    "passed on": lambda x: map(str, [helper]), "default": lambda x, h=helper: h.f(x),
    "attribute": Holder(), "class attribute": Attribute(),
}
size = {"constant": lambda x: x * helper.SIZE}
cycle = {"cycle": lambda x: helper.even(x)}
def unloaded(x):
    import late_only
    return late_only.f(x)
late = {"unloaded": unloaded}
first = digest(unloaded)
assert "late_only" not in sys.modules
import late_only
assert digest(unloaded) == first, "loading a module changes nothing"
print(json.dumps({
    kind: {name: digest(fn) for name, fn in globals()[kind].items()}
    for kind in ("used", "whole", "size", "cycle", "late")
}))
"""


def run(folder: Path, script: str, old: str = "", new: str = "") -> str:
    """What a new process prints, with one text in the modules replaced by another."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace(old, new) if old else text)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        "PYTHONDONTWRITEBYTECODE": "1",  # of two edits within a second, the second would be missed
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def changed(before: str, after: str) -> set[str]:
    old, new = json.loads(before), json.loads(after)
    return {name for kind in old for name in old[kind] if old[kind][name] != new[kind][name]}


def names(digests: str, *kinds: str) -> set[str]:
    return {name for kind in kinds for name in json.loads(digests)[kind]}


def test_an_edited_helper_changes_whatever_reaches_it(tmp_path: Path) -> None:
    before = run(tmp_path, FORMS)
    assert run(tmp_path, FORMS) == before
    reaching = names(before, "used", "whole", "late")
    assert changed(before, run(tmp_path, FORMS, "other.g(x) + 1", "other.g(x) + 5")) == reaching
    assert changed(before, run(tmp_path, FORMS, "return x * 2", "return x * 3")) == reaching


@pytest.mark.rest
def test_an_edit_elsewhere_changes_only_what_may_reach_it(tmp_path: Path) -> None:
    before = run(tmp_path, FORMS)
    whole = names(before, "whole", "late")
    edited = run(tmp_path, FORMS, "def unused(x): return x", "def unused(x): return -x")
    assert changed(before, edited) == whole
    edited = run(tmp_path, FORMS, "SIZE = 3", "SIZE = 4")
    assert changed(before, edited) == whole | {"constant"}
    edited = run(tmp_path, FORMS, "n != 0 and", "n > 0 and")
    assert changed(before, edited) == whole | {"cycle"}


RESULTS = """
import json, os
import numpy as np, pyarrow as pa
import silva as sv
import helper

rows = sv.from_columns({"x": np.arange(4)}).derive(y=lambda x: helper.f(x))
loader = rows.cache("cache").batch(4).loader(backend="inline")
print([int(y) for batch in loader for y in batch["y"]])

fresh = not os.path.exists("table")
table = sv.Table.create("table", pa.table({"x": [0, 1]})) if fresh else sv.Table.open("table")
number = table.version.number
table.derive(y=lambda x: helper.f(x))
print(table.version.number - number, [row["y"] for row in table.read()])
table.materialize("y")

loader = rows.batch(2).loader(backend="inline")
if fresh:
    next(iter(loader))
    json.dump(loader.state_dict(), open("state.json", "w"))
else:
    try:
        loader.load_state_dict(json.load(open("state.json")))
        print("loaded")
    except sv.StateError as error:
        print("derive y" in str(error) and "code, constants or data" in str(error))
"""


@pytest.mark.rest
def test_caches_tables_and_states_notice_an_edited_helper(tmp_path: Path) -> None:
    assert run(tmp_path, RESULTS).splitlines() == ["[1, 3, 5, 7]", "1 [1, 3]"]
    assert run(tmp_path, RESULTS).splitlines() == ["[1, 3, 5, 7]", "0 [1, 3]", "loaded"]
    edited = run(tmp_path, RESULTS, "other.g(x) + 1", "other.g(x) + 5")
    assert edited.splitlines() == ["[5, 7, 9, 11]", "1 [5, 7]", "True"]


def test_who_edits_a_module_in_use_changes_it_when_it_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_while_in_use.py"
    file.write_text("def f(x): return x + 1\n")
    module = importlib.import_module("edited_while_in_use")
    before = digest([module])
    file.write_text("def f(x): return x + 5\n")
    assert digest([module]) == before, "this process still runs what it has loaded"
    importlib.reload(module)
    assert digest([module]) != before
    del sys.modules["edited_while_in_use"]


def test_modules_without_a_source_are_followed_and_named_where_they_are_passed_on() -> None:
    made = types.ModuleType("made")
    made.f = lambda x: x + 1  # type: ignore[attr-defined]
    made.lock = threading.Lock()  # type: ignore[attr-defined]

    def follows(x: int) -> int:
        return made.f(x)  # type: ignore[no-any-return]

    before = digest(follows)
    assert opaque_parts(follows) == []
    assert opaque_parts(lambda x: made.lock) == ["made.lock"]
    assert opaque_parts(lambda x: [made, x]) == ["made"]
    made.f = lambda x: x + 2  # type: ignore[attr-defined]
    assert digest(follows) != before


def test_modules_that_refuse_to_tell_and_imports_that_fail_do_no_harm() -> None:
    made = types.ModuleType("made")

    def refuse(name: str) -> None:
        raise ImportError(name)

    made.__getattr__ = refuse  # type: ignore[method-assign]
    assert opaque_parts(lambda x: made.anything(x)) == ["made"]

    def fails(x: int) -> None:
        import not_there_at_all.nor_here  # type: ignore[import-not-found]  # noqa: F401

    assert opaque_parts(fails) == []
    beyond = Used(imports={(3, "", ("beyond",)), (1, "package", ())})
    assert imported(beyond, "a.b") == imported(beyond, None) == []


def test_the_names_that_code_uses() -> None:
    def uses(x: int) -> object:
        from os import path

        return np.linalg.norm(x), path, np  # type: ignore[name-defined] # noqa: F821

    used = used_by(uses.__code__)
    assert used.globals == {"np"}
    assert used.attributes == {"np": {(), ("linalg", "norm")}}
    assert used.imports == {(0, "os", ("path",))}
