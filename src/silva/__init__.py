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
"""

from typing import TYPE_CHECKING, Any

from silva.columns.ragged import Ragged
from silva.errors import (
    ColumnError,
    DeadlineError,
    FailureBudgetExceeded,
    LoaderError,
    PicklingError,
    PlanError,
    RowError,
    SilvaError,
    SourceError,
    StateError,
    WorkerError,
)
from silva.operators.image_expr import image
from silva.order.state import merge as merge_states
from silva.order.state import reshard
from silva.pipeline import Pipeline, concat, mix, zip
from silva.plan.expr import Expr, col
from silva.plan.function import batched, impure, owns, stateful
from silva.plan.operator import Operator, register_operator
from silva.run.failures import Skip, Substitute
from silva.sources import (
    from_arrow,
    from_columns,
    from_huggingface,
    from_items,
    from_torch,
    read_arrow,
    read_csv,
    read_files,
    read_json,
    read_lines,
    read_npy,
    read_parquet,
    read_tar,
)

if TYPE_CHECKING:
    from silva.loader import Loader

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`sv.Loader`: the engine is imported with the first loader, not with the package."""
    if name == "Loader":
        from silva.loader import Loader

        return Loader
    raise AttributeError(f"module 'silva' has no attribute {name!r}")


__all__ = [
    "ColumnError",
    "DeadlineError",
    "Expr",
    "FailureBudgetExceeded",
    "Loader",
    "LoaderError",
    "Operator",
    "PicklingError",
    "Pipeline",
    "PlanError",
    "Ragged",
    "RowError",
    "SilvaError",
    "Skip",
    "SourceError",
    "StateError",
    "Substitute",
    "WorkerError",
    "batched",
    "col",
    "concat",
    "from_arrow",
    "from_columns",
    "from_huggingface",
    "from_items",
    "from_torch",
    "image",
    "impure",
    "merge_states",
    "mix",
    "owns",
    "read_arrow",
    "read_csv",
    "read_files",
    "read_json",
    "read_lines",
    "read_npy",
    "read_parquet",
    "read_tar",
    "register_operator",
    "reshard",
    "stateful",
    "zip",
]
