"""silva: write what the data pipeline is; silva plans how it runs.

A pipeline is rows with named columns and the functions that derive them:

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

Public names are imported when they are first used: a worker process, which needs few of them,
starts in half the time.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silva.columns.grouped_batch import Grouped
    from silva.columns.ragged import Ragged
    from silva.errors import (
        ColumnError,
        DeadlineError,
        FailureBudgetExceeded,
        LoaderError,
        PicklingError,
        PlanError,
        RowError,
        ServiceError,
        SilvaError,
        SourceError,
        StateError,
        TableError,
        WorkerError,
    )
    from silva.feed.per_group import per_group
    from silva.joins.latest import Latest
    from silva.loader import Loader
    from silva.operators.audio_expr import audio
    from silva.operators.batch_mixing import cutmix, mixup
    from silva.operators.image_expr import image
    from silva.operators.list_expr import list
    from silva.operators.num_expr import num
    from silva.operators.text_expr import text
    from silva.optimize.rewrite import Rewrite
    from silva.optimize.runner import Rule, register_rule
    from silva.order.state import merge_states, reshard
    from silva.pipeline import Pipeline
    from silva.plan.expr import Expr, col
    from silva.plan.function import batched, impure, owns, stateful
    from silva.plan.law import Law, laws, register_law
    from silva.plan.operator import Operator, register_operator
    from silva.run.failures import Skip, Substitute
    from silva.service.client import Served, connect
    from silva.service.server import Service
    from silva.several import concat, mix, zip
    from silva.sources import (
        from_arrow,
        from_columns,
        from_huggingface,
        from_items,
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
    from silva.store.read import read_table
    from silva.store.table import Table

__version__ = "0.1.0"

_HOMES = {
    "silva.columns.grouped_batch": ("Grouped",),
    "silva.columns.ragged": ("Ragged",),
    "silva.errors": (
        "ColumnError",
        "DeadlineError",
        "FailureBudgetExceeded",
        "LoaderError",
        "PicklingError",
        "PlanError",
        "RowError",
        "ServiceError",
        "SilvaError",
        "SourceError",
        "StateError",
        "TableError",
        "WorkerError",
    ),
    "silva.feed.per_group": ("per_group",),
    "silva.joins.latest": ("Latest",),
    "silva.loader": ("Loader",),
    "silva.operators.audio_expr": ("audio",),
    "silva.operators.batch_mixing": ("cutmix", "mixup"),
    "silva.operators.image_expr": ("image",),
    "silva.operators.list_expr": ("list",),
    "silva.operators.num_expr": ("num",),
    "silva.operators.text_expr": ("text",),
    "silva.optimize.rewrite": ("Rewrite",),
    "silva.optimize.runner": ("Rule", "register_rule"),
    "silva.order.state": ("merge_states", "reshard"),
    "silva.pipeline": ("Pipeline",),
    "silva.plan.expr": ("Expr", "col"),
    "silva.plan.function": ("batched", "impure", "owns", "stateful"),
    "silva.plan.law": ("Law", "laws", "register_law"),
    "silva.plan.operator": ("Operator", "register_operator"),
    "silva.run.failures": ("Skip", "Substitute"),
    "silva.service.client": ("Served", "connect"),
    "silva.service.server": ("Service",),
    "silva.several": ("concat", "mix", "zip"),
    "silva.sources": (
        "from_arrow",
        "from_columns",
        "from_huggingface",
        "from_items",
        "from_torch",
        "read_arrow",
        "read_csv",
        "read_delta",
        "read_files",
        "read_iceberg",
        "read_json",
        "read_lance",
        "read_lines",
        "read_npy",
        "read_parquet",
        "read_tar",
    ),
    "silva.store.read": ("read_table",),
    "silva.store.table": ("Table",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ColumnError",
    "DeadlineError",
    "Expr",
    "FailureBudgetExceeded",
    "Grouped",
    "Latest",
    "Law",
    "Loader",
    "LoaderError",
    "Operator",
    "PicklingError",
    "Pipeline",
    "PlanError",
    "Ragged",
    "Rewrite",
    "RowError",
    "Rule",
    "Served",
    "Service",
    "ServiceError",
    "SilvaError",
    "Skip",
    "SourceError",
    "StateError",
    "Substitute",
    "Table",
    "TableError",
    "WorkerError",
    "audio",
    "batched",
    "col",
    "concat",
    "connect",
    "cutmix",
    "from_arrow",
    "from_columns",
    "from_huggingface",
    "from_items",
    "from_torch",
    "image",
    "impure",
    "laws",
    "list",
    "merge_states",
    "mix",
    "mixup",
    "num",
    "owns",
    "per_group",
    "read_arrow",
    "read_csv",
    "read_delta",
    "read_files",
    "read_iceberg",
    "read_json",
    "read_lance",
    "read_lines",
    "read_npy",
    "read_parquet",
    "read_table",
    "read_tar",
    "register_law",
    "register_operator",
    "register_rule",
    "reshard",
    "stateful",
    "text",
    "zip",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'silva' has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value  # found here the next time
    return value


def __dir__() -> Iterable[str]:
    return sorted([*globals(), *__all__])
