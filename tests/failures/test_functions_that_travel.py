"""Functions reach workers from anywhere: lambdas, closures, scripts without a guard, notebooks.
Those that cannot travel give an error that names the variable."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from failure_tools import run_script, worker_pids

import silva as sv
from silva.testing import cut_blocks


def numbers(n: int = 40) -> sv.Pipeline:
    return sv.from_columns({"x": range(n)})


def lock_in_closure():
    guard = threading.Lock()
    return numbers().derive(y=lambda x: guard and x), "'guard' (lock)"


def file_in_closure(folder: Path):
    log = (folder / "log").open("w")
    return numbers().derive(y=lambda x: log and x), "'log' (TextIOWrapper)"


def generator_in_closure():
    numbered = (i for i in range(3))
    return numbers().filter(lambda x: numbered is not None), "'numbered' (generator)"


def lock_of_a_helper():
    guard = threading.Lock()

    def helper(x):
        return guard and x

    return numbers().derive(y=lambda x: helper(x)), "'guard' (lock)"


def lock_in_an_argument():
    class Model:
        def __init__(self, guard):
            self.guard = guard

        def __call__(self, x):
            return x

    return numbers().derive(y=sv.stateful(Model)(guard=threading.Lock())), "'guard' (lock)"


def lock_in_a_collate():
    guard = threading.Lock()
    return numbers().batch(4, collate=lambda rows: guard and rows), "'guard' (lock)"


def lock_after_batch():
    guard = threading.Lock()
    return numbers().batch(4).derive(y=lambda x: guard and x), "'guard' (lock)"


@pytest.mark.parametrize(
    "build",
    [
        lock_in_closure, file_in_closure, generator_in_closure, lock_of_a_helper,
        lock_in_an_argument, lock_in_a_collate, lock_after_batch,
    ],
)  # fmt: skip
def test_a_function_that_cannot_travel_is_an_error_that_names_the_variable(build, tmp_path):
    pipeline, name = build(tmp_path) if build is file_in_closure else build()
    loader = pipeline.loader(backend="processes", workers=2)
    with pytest.raises(sv.PicklingError) as raised:
        list(loader)
    assert name in str(raised.value)
    assert "test_functions_that_travel.py:" in str(raised.value)
    with pipeline.loader(backend="threads", workers=2) as loader:
        assert list(loader)


def unreturnable(x):
    return threading.Lock() if x == 5 else x


def test_a_result_that_cannot_travel_is_an_error_that_names_the_step():
    loader = numbers().derive(y=unreturnable).batch(4).loader(backend="processes", workers=1)
    with pytest.raises(sv.SilvaError, match=r"unreturnable.*cannot be sent back"):
        list(loader)


class Unreadable:
    """Pickles, and then cannot be rebuilt."""

    def __reduce__(self):
        return (int, ("not a number",))


def test_a_result_that_cannot_be_rebuilt_is_an_error_that_names_the_step():
    pipeline = numbers().derive(y=lambda x: Unreadable()).batch(4)
    loader = pipeline.loader(backend="processes", workers=1)
    with pytest.raises(sv.SilvaError, match="cannot be read by the loader"):
        list(loader)


def test_rows_that_cannot_be_rebuilt_in_a_worker_are_an_error_not_a_dead_worker():
    pipeline = sv.from_items([{"x": Unreadable()} for _ in range(4)]).derive(y=lambda x: 1).batch(2)
    loader = pipeline.loader(backend="processes", workers=1)
    with pytest.raises(sv.SilvaError, match="not a number"):
        list(loader)


UNGUARDED = """
import dataclasses
import silva as sv

print("running", flush=True)
SCALE = 3

@dataclasses.dataclass
class Point:
    x: int
    y: float

def helper(x):
    return x * SCALE

class Shift:
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        return x + self.by

pipeline = (
    sv.from_columns({"x": range(200)})
    .derive(y=lambda x: helper(x))
    .derive(z=sv.stateful(Shift)(7))
    .derive(p=lambda x: Point(x, x / 2))
    .batch(16)
)
loader = pipeline.loader(backend="processes", workers=2)
points = []
for batch in loader:
    assert (batch["y"] == batch["x"] * 3).all() and (batch["z"] == batch["x"] + 7).all()
    points += list(batch["p"])
assert all(type(p) is Point for p in points), type(points[0])
assert points[10] == Point(10, 5.0)
print("done", len(points))
"""


def test_an_unguarded_script_with_lambdas_and_classes_works_and_runs_once(tmp_path: Path):
    assert run_script(tmp_path, UNGUARDED).split("\n") == ["running", "done 200", ""]


def test_files_in_the_working_directory_do_not_take_the_place_of_libraries(tmp_path: Path):
    for name in ("queue", "socket", "numpy", "silva", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "inner").mkdir()
    text = f"import os\nos.chdir({str(tmp_path)!r})\n{UNGUARDED}"
    assert "done 200" in run_script(tmp_path / "inner", text)


def test_a_module_of_the_users_that_imports_silva_works_in_workers(tmp_path: Path):
    (tmp_path / "steps.py").write_text(
        "import silva as sv\n"
        "@sv.batched\n"
        "def double(x):\n"
        "    return x * 2\n"
        "TRAIN = sv.from_columns({'x': range(40)}).derive(y=double)\n"
    )
    text = (
        "import steps\n"
        "loader = steps.TRAIN.batch(4).loader(backend='processes', workers=1)\n"
        "print(sum(int(b['y'].sum()) for b in loader))\n"
    )
    assert run_script(tmp_path, text) == "1560\n"


CELLS = [
    """
import silva as sv
class Label:
    def __init__(self, name):
        self.name = name
SCALE = 5
""",
    """
def scaled(x):
    return x * SCALE

pipeline = (
    sv.from_columns({"x": range(100)})
    .derive(y=scaled, label=lambda x: Label(f"row {x}"))
    .batch(10)
)
""",
    """
with pipeline.loader(backend="processes", workers=2) as loader:
    batches = list(loader)
assert [int(v) for b in batches for v in b["y"]] == [5 * i for i in range(100)]
assert all(type(label) is Label for b in batches for label in b["label"])
print("cells done", batches[3]["label"][2].name)
""",
    """
def scaled(x):
    return x * SCALE + 1

SCALE = 7
with sv.from_columns({"x": range(4)}).derive(y=scaled).batch(4).loader(
    backend="processes", workers=1
) as loader:
    print([b["y"].tolist() for b in loader])
""",
]


def test_functions_and_classes_of_a_notebook_work_in_workers(tmp_path: Path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "here", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    nbclient.NotebookClient(notebook, kernel_name="here", timeout=60).execute()
    told = [o["text"] for cell in notebook.cells for o in cell.outputs if "text" in o]
    assert told == ["cells done row 32\n", "[[1, 8, 15, 22]]\n"]


@dataclasses.dataclass
class Counted:
    folder: str

    def __post_init__(self):
        name = f"{os.getpid()}-{len(os.listdir(self.folder))}"
        (Path(self.folder) / name).touch()

    def __call__(self, x):
        return x + os.getpid() * 0


def test_a_stateful_class_is_built_once_per_worker(tmp_path: Path):
    pipeline = sv.from_columns({"x": range(400)}).derive(y=sv.stateful(Counted)(str(tmp_path)))
    with cut_blocks(pipeline.batch(4).loader(backend="processes", workers=2), [4]) as loader:
        for _ in range(2):
            list(loader)
        built = [name.partition("-")[0] for name in os.listdir(tmp_path)]
        assert len(built) == len(set(built)), "built twice in one worker"
        assert set(map(int, built)) <= set(worker_pids())


HYGIENE = """
import os, sys
import torch, cv2, rich, pandas  # in the parent: workers must not follow
import silva as sv

HEAVY = ("torch", "pyarrow", "cv2", "simplejpeg", "rich", "pandas", "jax", "psutil", "asyncio")
NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

def threads_of_libraries(x):
    import cv2, torch
    return f"{torch.get_num_threads()},{cv2.getNumThreads()}"

steps = dict(
    modules=lambda x: ",".join(m for m in HEAVY if m in sys.modules),
    loader=lambda x: "silva.loader" in sys.modules,
    environment=lambda x: ",".join(os.environ[n] for n in NAMES),
)
numbers = sv.from_columns({"x": range(8)})
for derive in (steps, dict(threads=threads_of_libraries)):
    pipeline = numbers.derive(**derive).drop("x").batch(8)
    with pipeline.loader(backend="processes", workers=1) as loader:
        (batch,) = loader
    print(*[f"{name}={values[0]}" for name, values in batch.items()])
"""


def test_workers_import_only_what_steps_need_and_run_libraries_on_one_thread(tmp_path: Path):
    text = HYGIENE if importlib.util.find_spec("pandas") else HYGIENE.replace(", pandas  #", "  #")
    out = run_script(tmp_path, text)
    assert out == "modules= loader=False environment=1,1,1,1\nthreads=1,1\n"


OWN_CLASS = """
from dataclasses import dataclass
import silva as sv

@dataclass
class Point:
    x: int

def is_point(p):
    return isinstance(p, Point)

rows = sv.from_columns({"x": range(8)}).derive(p=lambda x: Point(x))
borders = {
    "cache": rows.cache().derive(y=is_point),
    "size": rows.derive(z=sv.batched(size=4)(lambda x: x * 2)).derive(y=lambda p: is_point(p)),
    "window": rows.shuffle(window=4).derive(y=is_point),
}
for name, pipeline in borders.items():
    found = list(pipeline.loader(backend="processes", workers=2))
    print(name, sorted(row["p"].x for row in found), all(type(row["p"]) is Point for row in found),
          all(row["y"] for row in found))
"""


def test_objects_of_a_class_of_the_script_cross_every_border(tmp_path):
    expected = f"{list(range(8))} True True"
    out = run_script(tmp_path, OWN_CLASS)
    assert out.splitlines() == [f"{name} {expected}" for name in ("cache", "size", "window")]
