"""The command line: `silva demo | run | serve | plan | explain | cache | table | version`.

A user's mistake (a missing file, a wrong name, a plan that cannot be built) prints one line on
stderr and exits with code 2. A failed row exits with code 1 and shows the user's own traceback.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

import silva
from silva.cli import cache, table
from silva.errors import FailureBudgetExceeded, PlanError, RowError, SilvaError
from silva.folders import write_file
from silva.insight.progress import rows_of
from silva.physical.stage.raised import user_traceback
from silva.pipeline import Pipeline
from silva.plan.schema import is_batched
from silva.serve.requests import answers_requests
from silva.service.access import VARIABLE

if TYPE_CHECKING:
    from silva.serve.http.server import Server

app = App(
    name="silva",
    help="Run, explain and serve data pipelines for machine learning; manage caches and tables.",
    version=silva.__version__,
    result_action="return_value",
)
app.command(cache.app)
app.command(table.app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        done = app(arguments)
    except (RowError, FailureBudgetExceeded) as error:
        return _print_error(error, 1)
    except SilvaError as error:
        return _print_error(error, 2)
    except KeyboardInterrupt:
        return 130
    return done if isinstance(done, int) else 0


def _print_error(error: Exception, code: int) -> int:
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
    """Run a pipeline for one epoch and report its throughput; or run one row alone.

    Parameters
    ----------
    target
        The file and the pipeline in it, e.g. train.py:pipeline; train.py if it has only one.
    row
        Run only the row with this key, which error messages show, e.g. 0:17.
    batches
        Stop after this many batches.
    workers
        Maximum number of workers; by default the number of cores.
    progress
        Show a live line.
    """
    if epoch < 0 or (batches is not None and batches < 0):
        raise PlanError("--epoch and --batches are whole numbers of at least 0")
    pipeline = find_pipeline(target)
    if row is not None:
        return _run_row(pipeline, row, epoch)
    count: int | Literal["auto"] = "auto" if workers is None else workers
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
    except (SilvaError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  the user's own exception
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
        The file and the pipeline in it, e.g. train.py:pipeline; train.py if it has only one.
    analyze
        Run the pipeline for a while, and show where the time goes.
    seconds
        How long to run it, in seconds; 5 by default.
    json
        Print JSON instead of text.
    html
        Also write a page to this file.
    """
    if seconds is not None and not analyze:
        raise PlanError("--seconds is the duration of --analyze: pass both")
    pipeline = find_pipeline(target)
    found = (
        pipeline.explain(analyze) if seconds is None else pipeline.explain(analyze, seconds=seconds)
    )
    if html is not None:
        write_file(html, found.to_html(), "The page is incomplete: free some space")
    print(found.to_json() if json else found)


@app.command
def serve(
    *targets: str,
    host: str = "127.0.0.1",
    port: int = 0,
    certificate: Path | None = None,
    key: Path | None = None,
    memory: str | None = None,
    runs: int | None = None,
    connections: int | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    slo: float | None = None,
    deadline: float | None = None,
    rate: float | None = None,
    behind_proxy: Annotated[bool | None, Parameter(negative="")] = None,
) -> int:
    """Run pipelines once and send their batches to many trainers, until Ctrl-C.

    A pipeline that begins with sv.requests answers requests over HTTP instead; give it alone.
    Readers and clients need the token in $SILVA_TOKEN; without it, one is generated and shown.

    Parameters
    ----------
    targets
        Files and the pipelines in them, e.g. train.py:pipeline; trainers use the pipeline's name.
    host
        The address to listen on; any address beyond loopback needs a certificate.
    port
        The port to listen on; by default a free one.
    certificate
        The file of the TLS certificate, in PEM format.
    key
        The file of the certificate's private key.
    memory
        Batches: memory for those that slower trainers still need; 1GiB by default.
    runs
        Batches: maximum number of streams that run at once; 64 by default.
    connections
        Batches: maximum number of connections at once; 256 by default.
    workers
        Batches: maximum number of workers; by default the number of cores.
    cluster
        Batches: the Ray cluster to use if local cores are too few: auto, or ray://host:port.
    slo
        Requests: seconds within which one should be answered.
    deadline
        Requests: seconds after which one is given up; 60 by default.
    rate
        Requests: how many per second are admitted.
    behind_proxy
        Requests: a proxy in front of the server ends TLS.
    """
    if (certificate is None) != (key is None):
        raise PlanError("TLS needs both --certificate and --key")
    secure = None if certificate is None or key is None else (str(certificate), str(key))
    found = {_name(target): find_pipeline(target) for target in targets}
    batches = {
        "memory": memory,
        "runs": runs,
        "connections": connections,
        "workers": workers,
        "cluster": cluster,
    }
    requests = {"slo": slo, "deadline": deadline, "rate": rate, "behind_proxy": behind_proxy}
    if any(answers_requests(pipeline.plan) for pipeline in found.values()):
        if len(found) > 1:
            raise PlanError("a pipeline that answers requests is served alone")
        _refuse(batches, "pipelines whose batches are sent to trainers")
        (pipeline,) = found.values()
        return _wait(pipeline.serve(host=host, port=port, tls=secure, **_given(requests)))
    _refuse(requests, "a pipeline that answers requests")
    return _wait(silva.Service(found, host=host, port=port, certificate=secure, **_given(batches)))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: Mapping[str, Any], kind: str) -> None:
    """Refuses options of the other kind of server, rather than to ignore them."""
    for name in _given(options):
        raise PlanError(f"--{name.replace('_', '-')} is for {kind}: leave it out")


def _wait(serving: Server | silva.Service) -> int:
    """Shows the address, and serves until Ctrl-C or SIGTERM, which end it in the same way."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving:
            _show_address(serving.address, serving.token)
            serving.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _show_address(address: str, token: str) -> None:
    shown = f"of ${VARIABLE}" if VARIABLE in os.environ else token
    print(f"address {address}\ntoken {shown}", flush=True)


@app.command
def demo(*, folder: Path | None = None, photos: int = 3000) -> None:
    """Train a small classifier on photos, stop it in the middle, resume exactly, write a report.

    Parameters
    ----------
    folder
        Keep the photos in this folder; by default they go to a temporary folder.
    photos
        The number of photos to make.
    """
    from silva.demo import run_demo

    run_demo(folder=folder, photos=photos)


@app.command
def version() -> None:
    """Show silva's version."""
    print(silva.__version__)


@app.command
def plan(
    target: str, *, on: Path | None = None, save: Path | None = None, trace: Path | None = None
) -> int:
    """Plan a training job on a topology, and say why so.

    Parameters
    ----------
    target
        A job in a file: `train.py:job`.
    on
        The file of the topology, or the name of a preset; this machine by default.
    save
        Where to write the plan, as JSON.
    trace
        Where to write a step as it is predicted, for ui.perfetto.dev.
    """
    from silva.fabric.topology import Topology
    from silva.job.job import Job

    file, found, name = target.rpartition(":")
    if not found or not file or not name:
        raise PlanError(f"write FILE:NAME, such as train.py:job, not {target!r}")
    job = getattr(_import(Path(file)), name, None)
    if not isinstance(job, Job):
        raise PlanError(f"{name!r} in {file!r} is {type(job).__name__}, and no sv.Job")
    topology = None
    if on is not None:
        topology = Topology.load(on) if on.suffix else Topology.preset(str(on))
    made = job.plan(topology)
    print(made.explain())
    if save is not None:
        made.save(save)
    if trace is not None:
        made.simulate().save(trace)
    return 0


def find_pipeline(target: str) -> Pipeline:
    """Returns the pipeline that `FILE:NAME` names: a variable, or a function that returns one."""
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
    """Returns the name that trainers use: that of the pipeline, or of a file with only one."""
    file, _, name = target.rpartition(":")
    return name if file else Path(target).stem


def _only_pipeline(module: ModuleType, file: str) -> Pipeline:
    found = _pipelines(module)
    if len(found) != 1:
        raise PlanError(f"name the pipeline as {file}:NAME; {_offers(module)}")
    (pipeline,) = found.values()
    return pipeline


def _pipelines(module: ModuleType) -> dict[str, Pipeline]:
    return {name: x for name, x in vars(module).items() if isinstance(x, Pipeline)}


def _offers(module: ModuleType) -> str:
    return f"its pipelines are: {', '.join(_pipelines(module)) or '(none)'}"


def _import(file: Path) -> ModuleType:
    """Imports the file as a module. Its folder becomes the first on the path, as when Python runs
    the file, so that workers can import it too."""
    if not file.is_file():
        script = Path(f"{str(file).replace('.', '/')}.py")
        hint = f": a pipeline is named by its file, {script}:NAME" if script.is_file() else ""
        raise PlanError(f"there is no file {str(file)!r}{hint}")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise PlanError(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
