"""silva is a data loader for machine learning: you write what happens to rows, silva plans how.

A pipeline is rows with named columns, and the functions that derive them:

>>> import silva as sv
>>> train = (
...     sv.from_columns({"x": range(100)})
...     .derive(y=lambda x: x * x)
...     .filter(sv.col("x") % 2 == 0)
...     .shuffle(seed=0)
...     .batch(10)
... )
>>> sum(len(batch["y"]) for batch in train.loader(workers=0))
50

Public names are imported on first use, so that worker processes, which need few of them, start in
half the time.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silva import train
    from silva.columns.ragged import Grouped, Ragged
    from silva.combine import concat, mix, zip
    from silva.errors import (
        ColumnError,
        DeadlineError,
        FailureBudgetExceeded,
        FolderError,
        LoaderError,
        PicklingError,
        PlanError,
        RequestError,
        RowError,
        ServiceError,
        SilvaError,
        SourceError,
        StateError,
        StepError,
        TableError,
        WorkerError,
    )
    from silva.fabric.topology import Topology
    from silva.feed.per_group import per_group
    from silva.io.source import register_source
    from silva.job.job import Job
    from silva.joins.latest import Latest
    from silva.loader import Loader
    from silva.operators.audio import audio
    from silva.operators.batch_mixing import cutmix, mixup
    from silva.operators.image import image
    from silva.operators.list import list
    from silva.operators.num import num
    from silva.operators.text import text
    from silva.options import LoaderOptions, ServiceOptions
    from silva.order.reshard import reshard
    from silva.order.state import merge_states
    from silva.pipeline import Pipeline
    from silva.plan.choice import choice
    from silva.plan.expr import Expr, col
    from silva.plan.function import batched, impure, owns, stateful
    from silva.plan.law import Law, laws, register_law
    from silva.plan.operator import Operator, register_operator
    from silva.rewrite.rule import Rewrite, Rule
    from silva.rewrite.runner import register_rule
    from silva.run.failures import Skip, Substitute
    from silva.serve import models
    from silva.serve.cascade import cascade
    from silva.serve.http.access import Access
    from silva.serve.index.index import Index
    from silva.serve.index.rerank import rerank
    from silva.serve.loop.loop import loop
    from silva.serve.requests import requests
    from silva.serve.search.calibration import calibrate
    from silva.serve.search.metrics import Metric, exact_match, f1, recall_at
    from silva.serve.search.tuning.constraints import Budget, mean, p95
    from silva.serve.tools import tools
    from silva.service.client import Served, connect
    from silva.service.server import Service
    from silva.sources import (
        from_arrow,
        from_columns,
        from_huggingface,
        from_items,
        from_source,
        from_torch,
        read_arrow,
        read_csv,
        read_delta,
        read_files,
        read_iceberg,
        read_json,
        read_lance,
        read_lines,
        read_npy,
        read_parquet,
        read_tar,
    )
    from silva.store.table import Table, read_table

__version__ = "0.1.0"

_HOMES = {
    "silva": "train",
    "silva.columns.ragged": "Grouped Ragged",
    "silva.combine": "concat mix zip",
    "silva.errors": (
        "ColumnError DeadlineError FailureBudgetExceeded FolderError LoaderError PicklingError "
        "PlanError RequestError RowError ServiceError SilvaError SourceError StateError StepError "
        "TableError WorkerError"
    ),
    "silva.fabric.topology": "Topology",
    "silva.feed.per_group": "per_group",
    "silva.io.source": "register_source",
    "silva.job.job": "Job",
    "silva.joins.latest": "Latest",
    "silva.loader": "Loader",
    "silva.operators.audio": "audio",
    "silva.operators.batch_mixing": "cutmix mixup",
    "silva.operators.image": "image",
    "silva.operators.list": "list",
    "silva.operators.num": "num",
    "silva.operators.text": "text",
    "silva.options": "LoaderOptions ServiceOptions",
    "silva.order.reshard": "reshard",
    "silva.order.state": "merge_states",
    "silva.pipeline": "Pipeline",
    "silva.plan.choice": "choice",
    "silva.plan.expr": "Expr col",
    "silva.plan.function": "batched impure owns stateful",
    "silva.plan.law": "Law laws register_law",
    "silva.plan.operator": "Operator register_operator",
    "silva.rewrite.rule": "Rewrite Rule",
    "silva.rewrite.runner": "register_rule",
    "silva.run.failures": "Skip Substitute",
    "silva.serve": "models",
    "silva.serve.http.access": "Access",
    "silva.serve.cascade": "cascade",
    "silva.serve.index.index": "Index",
    "silva.serve.index.rerank": "rerank",
    "silva.serve.loop.loop": "loop",
    "silva.serve.requests": "requests",
    "silva.serve.tools": "tools",
    "silva.serve.search.calibration": "calibrate",
    "silva.serve.search.metrics": "Metric exact_match f1 recall_at",
    "silva.serve.search.tuning.constraints": "Budget mean p95",
    "silva.service.client": "Served connect",
    "silva.service.server": "Service",
    "silva.sources": (
        "from_arrow from_columns from_huggingface from_items from_source from_torch read_arrow "
        "read_csv read_delta read_files read_iceberg read_json read_lance read_lines read_npy "
        "read_parquet read_tar"
    ),
    "silva.store.table": "Table read_table",
}
"""The public names, by the module that each comes from."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Access", "Budget", "ColumnError", "DeadlineError", "Expr", "FailureBudgetExceeded",
    "FolderError", "Grouped", "Index", "Job", "Latest", "Law", "Loader", "LoaderError",
    "LoaderOptions", "Metric", "Operator", "PicklingError", "Pipeline", "PlanError", "Ragged",
    "RequestError", "Rewrite", "RowError", "Rule", "Served", "Service", "ServiceError",
    "ServiceOptions", "SilvaError", "Skip", "SourceError", "StateError", "StepError", "Substitute",
    "Table", "TableError", "Topology", "WorkerError", "audio", "batched", "calibrate", "cascade",
    "choice", "col", "concat", "connect", "cutmix", "exact_match", "f1", "from_arrow",
    "from_columns", "from_huggingface", "from_items", "from_source", "from_torch", "image",
    "impure", "laws", "list", "loop", "mean", "merge_states", "mix", "mixup", "models", "num",
    "owns", "p95", "per_group", "read_arrow", "read_csv", "read_delta", "read_files",
    "read_iceberg", "read_json", "read_lance", "read_lines", "read_npy", "read_parquet",
    "read_table", "read_tar", "recall_at", "register_law", "register_operator", "register_rule",
    "register_source", "requests", "rerank", "reshard", "stateful", "text", "tools", "train", "zip",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        hint = import_module("silva.plan.hints").FUNCTIONS.get(name)
        told = "" if hint is None else f": write {hint}"
        raise AttributeError(f"module 'silva' has no attribute {name!r}{told}") from None
    is_room = home == __name__
    value = import_module(f"{home}.{name}") if is_room else getattr(import_module(home), name)
    globals()[name] = value  # found here the next time
    return value


def __dir__() -> Iterable[str]:
    return sorted([*globals(), *__all__])
