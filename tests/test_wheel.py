"""Silva as it is installed: every way into it works from a wheel, and nothing comes from elsewhere.

Modules that are imported by name, and files that are run in other processes, do not fail when they
are moved: they fail when a user first needs them. `ENTRY_POINTS` lists the places that have some.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ENTRY_POINTS = {
    "silva/__init__.py": "public names, by their home",
    "silva/operators/native.py": "native libraries, which are not silva's",
    "silva/plan/operator.py": "built-in operators, by the part of their name before the dot",
    "silva/run/pools/processes.py": "run/pools/worker.py, the script of a worker process",
    "silva/run/ray/pool.py": "the actor class, which Ray pickles",
    "silva/serve/models/__init__.py": "kinds of models, by their home",
    "silva/serve/models/gguf/child.py": "serve/models/gguf/process.py, a local model's process",
    "silva/store/files/extra.py": "libraries of the extra `store`, which are not silva's",
    "silva/testing.py": "a fresh process, which imports silva.testing",
}
"""Files that import a module by its name or start another process, and what they reach that way."""

_BY_NAME = re.compile(
    r"import_module\(|__import__\(|with_name\(|ray\.remote\(|sys\.executable|runpy"
)


def test_every_entry_point_is_listed():
    found = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if _BY_NAME.search(path.read_text())
    }
    assert found == ENTRY_POINTS.keys()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder into which the wheel of this checkout was installed."""
    made, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", ROOT, "--no-deps", "--wheel-dir", made]
    if importlib.util.find_spec("hatchling") is not None:
        build.append("--no-build-isolation")  # otherwise pip fetches the build backend
    _run([*pip, *build])
    (wheel,) = made.glob("silva-*.whl")
    _run([*pip, "install", "--no-deps", "--target", target, wheel])
    return target


def _run(command: list[object], **options: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=240, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _inside(installed: Path, folder: Path, code: str) -> str:
    """What a program prints that has the wheel before everything else, run in another folder."""
    (folder / "program.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return _run([sys.executable, folder / "program.py"], cwd=folder, env=env)


@pytest.mark.rest  # as all that need the wheel: pip may fetch the build backend
def test_every_module_public_name_operator_and_source_is_in_the_wheel(installed, tmp_path):
    imported = set(_inside(installed, tmp_path, _EVERYTHING).splitlines())
    own = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*.py")]
    assert imported == {str(installed / path) for path in own}
    assert (installed / "silva" / "py.typed").exists()


_EVERYTHING = """
import importlib, pathlib, sys
import silva as sv

root = pathlib.Path(sv.__file__).parent
for file in root.rglob("*.py"):
    parts = file.relative_to(root.parent).with_suffix("").parts
    importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
for name in sv.__all__:
    getattr(sv, name)

from silva.io.source import BUILT_IN, registered_sources
from silva.plan.operator import built_in_operators, operator

for found in built_in_operators():
    assert operator(found.name) is found
assert {kind.name for kind in registered_sources()} == set(BUILT_IN)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "silva":
        print(module.__file__)
"""


@pytest.mark.rest
@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_a_pipeline_runs_from_the_wheel(backend, installed, tmp_path):
    printed = _inside(installed, tmp_path, _PIPELINE.format(f"backend={backend!r}, workers=2"))
    _check(printed, installed)


@pytest.mark.rest
def test_a_pipeline_runs_from_the_wheel_on_ray(installed, tmp_path):
    arguments = "backend='ray', cluster='local', workers=1"
    _check(_inside(installed, tmp_path, _PIPELINE.format(arguments)), installed)


_PIPELINE = """
import silva as sv

def where(x):
    import silva
    return silva.__file__

rows = sv.from_columns({{"x": range(8)}}).derive(where=where).shuffle(seed=0).batch(4)
with rows.loader({}) as loader:
    for batch in loader:
        print(*batch["where"], sep="\\n")
"""


@pytest.mark.rest
def test_a_service_runs_from_the_wheel(installed, tmp_path):
    _check(_inside(installed, tmp_path, _SERVICE), installed)


_SERVICE = """
import silva as sv

def where(x):
    import silva
    return silva.__file__

rows = sv.from_columns({"x": range(8)}).derive(where=where).batch(4)
with sv.Service({"rows": rows}, backend="processes", workers=1) as service:
    with sv.connect(service.address, "rows", token=service.token) as loader:
        for batch in loader:
            print(*batch["where"], sep="\\n")
"""


def _check(printed: str, installed: Path) -> None:
    """Each of eight rows was made by the silva of the wheel."""
    lines = printed.splitlines()
    assert len(lines) == 8
    assert set(lines) == {str(installed / "silva" / "__init__.py")}


@pytest.mark.rest
@pytest.mark.parametrize("command", [[], ["demo"], ["cache"], ["table"]])
def test_the_command_runs_from_the_wheel(command, installed, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    for script in ([installed / "bin" / "silva"], ["-m", "silva"]):
        printed = _run([sys.executable, *script, *command, "--help"], env=env, cwd=tmp_path)
        assert printed.startswith(" ".join(["Usage: silva", *command]))
