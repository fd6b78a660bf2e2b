"""The command line: `silva demo | run | serve | explain | cache | table | version`.

A user's mistake (a file that is not there, a wrong name, a plan that cannot be built) is one line
on stderr and exit code 2; a row that fails is exit code 1, with the user's own traceback.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from cyclopts import App, Parameter

import silva
from silva.cli import cache, table
from silva.errors import FailureBudgetExceeded, PlanError, RowError, SilvaError
from silva.insight.progress import rows_of
from silva.physical.rows import user_traceback
from silva.pipeline import Pipeline
from silva.plan.verify import is_batched

app = App(
    name="silva",
    help="Machine-learning data pipelines that are planned, proven equal, and explained.",
    version=silva.__version__,
    result_action="return_value",
)
app.command(cache.app)
app.command(table.app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command; never returns."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        done = app(arguments)
    except (RowError, FailureBudgetExceeded) as error:
        return _say(error, 1)
    except SilvaError as error:
        return _say(error, 2)
    except KeyboardInterrupt:
        return 130
    return done if isinstance(done, int) else 0


def _say(error: Exception, code: int) -> int:
    print(f"silva: {error}", file=sys.stderr)
    return code


@app.command
def run(
    target: str,
    *,
    row: str | None = None,
    epoch: Annotated[int, Parameter(help="Which epoch to run.")] = 0,
    batches: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> int:
    """Run a pipeline for one epoch and say how fast it was; or run one row alone.

    Parameters
    ----------
    target
        The file and the pipeline in it, e.g. train.py:pipeline; just train.py if it has only one.
    row
        Run this row alone, by the key that an error message shows, e.g. 0:17.
    batches
        Stop after so many batches.
    workers
        Number of workers; as many as there are cores unless given.
    progress
        Show a live line.
    """
    if epoch < 0 or (batches is not None and batches < 0):
        raise PlanError("--epoch and --batches are whole numbers from 0 up")
    pipeline = find_pipeline(target)
    if row is not None:
        return _run_row(pipeline, row, epoch)
    count = "auto" if workers is None else workers
    with pipeline.loader(workers=count, progress=progress) as loader:
        loader.set_epoch(epoch)
        began = time.perf_counter()
        done = rows = 0
        batched = is_batched(pipeline.plan)
        for batch in loader:
            if batches is not None and done >= batches:
                break
            done += 1
            rows += rows_of(batch) if batched else 1
        spent = max(time.perf_counter() - began, 1e-9)
        print(loader.explain())
    kind = f"{done:,} batches of {rows:,} rows" if batched else f"{rows:,} rows"
    print(f"\n{kind} in {spent:.2f} s: {rows / spent:,.0f} rows/s")
    return 0


def _run_row(pipeline: Pipeline, key: str, epoch: int) -> int:
    try:
        found = pipeline.row(key, epoch=epoch)
    except SilvaError:
        raise
    except Exception as error:  # noqa: BLE001  the user's own, which is what they came to see
        sys.stderr.write(user_traceback(error))
        return 1
    for one in found if isinstance(found, list) else [found]:
        for name, value in one.items():
            print(f"{name}: {_short(value)}")
    return 0


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape:
        return f"array {shape} {value.dtype}, from {value.min()} to {value.max()}"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(value):,} long)"


@app.command
def explain(
    target: str,
    *,
    analyze: bool = False,
    seconds: float | None = None,
    json: bool = False,
    html: Path | None = None,
) -> None:
    """Show a pipeline's plan as written and as run, with a reason for every difference.

    Parameters
    ----------
    target
        The file and the pipeline in it, e.g. train.py:pipeline; just train.py if it has only one.
    analyze
        Run the pipeline for a while, and show where its time goes.
    seconds
        How long to run it for; 5 seconds unless given.
    json
        Print plain data instead of text.
    html
        Write a page to this file as well.
    """
    if seconds is not None and not analyze:
        raise PlanError("--seconds says how long --analyze runs: give both")
    pipeline = find_pipeline(target)
    limit = {} if seconds is None else {"seconds": seconds}
    found = pipeline.explain(analyze, **limit)
    if html is not None:
        html.write_text(found.to_html(), encoding="utf-8")
    print(found.to_json() if json else found)


@app.command
def serve(
    *targets: str,
    host: str = "127.0.0.1",
    port: int = 0,
    certificate: Path | None = None,
    key: Path | None = None,
    memory: str = "1GiB",
    workers: int | None = None,
    cluster: str | None = None,
) -> int:
    """Run pipelines for readers elsewhere, until Ctrl-C. The token is that of $SILVA_TOKEN, or a
    new one.

    Parameters
    ----------
    targets
        Files and the pipelines in them, e.g. train.py:pipeline, which readers know by its name.
    host
        Where to listen; anything but this machine needs a certificate.
    port
        A free one unless given.
    certificate
        The file of a certificate, in PEM.
    key
        The file of its key.
    memory
        For batches that are kept for readers that are not as far as others.
    workers
        Number of workers; as many as there are cores unless given.
    cluster
        A Ray cluster to run on when this machine's cores are too few: auto, or ray://host:port.
    """
    if (certificate is None) != (key is None):
        raise PlanError("--certificate and --key go together")
    with silva.Service(
        {_name(target): find_pipeline(target) for target in targets},
        host=host,
        port=port,
        certificate=None if certificate is None or key is None else (certificate, key),
        memory=memory,
        workers="auto" if workers is None else workers,
        cluster=cluster,
    ) as service:
        print(f"address {service.address}\ntoken {service.token}", flush=True)
        service.wait()
    return 0


@app.command
def demo(*, folder: Path | None = None, photos: int = 3000) -> None:
    """Train a small classifier on photos, stop it in the middle, resume exactly, write a report.

    Parameters
    ----------
    folder
        Keep the photos here; otherwise they are made in a temporary folder and deleted.
    photos
        How many photos to make.
    """
    from silva.demo import run_demo

    run_demo(folder=folder, photos=photos)


@app.command
def version() -> None:
    """Show silva's version."""
    print(silva.__version__)


def find_pipeline(target: str) -> Pipeline:
    """The pipeline that `FILE:NAME` names: a pipeline in the file, or a function that makes one."""
    file, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _import(Path(file))
    if not name:
        return _only_pipeline(module, file)
    if not hasattr(module, name):
        raise PlanError(f"{file} has no {name!r}; {_offers(module)}")
    found = getattr(module, name)
    made = found() if callable(found) and not isinstance(found, Pipeline) else found
    if not isinstance(made, Pipeline):
        raise PlanError(f"{name!r} in {file} is a {type(made).__name__}, not a pipeline")
    return made


def _name(target: str) -> str:
    """What readers call it: the name of the pipeline, or of the file that has no other."""
    file, _, name = target.rpartition(":")
    return name if file else Path(target).stem


def _only_pipeline(module: ModuleType, file: str) -> Pipeline:
    found = _pipelines(module)
    if len(found) != 1:
        raise PlanError(f"say which pipeline, as {file}:NAME; {_offers(module)}")
    (pipeline,) = found.values()
    return pipeline


def _pipelines(module: ModuleType) -> dict[str, Pipeline]:
    return {name: x for name, x in vars(module).items() if isinstance(x, Pipeline)}


def _offers(module: ModuleType) -> str:
    return f"pipelines there: {', '.join(_pipelines(module)) or '(none)'}"


def _import(file: Path) -> ModuleType:
    """The file as a module. Its folder goes first on the path, as when Python runs it, so that
    workers can import it too."""
    if not file.is_file():
        raise PlanError(f"there is no file {str(file)!r}")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise PlanError(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
