"""Opens what a served pipeline asks before the first request comes: models, and pinned indices.

An index that is open stays as it is, whatever becomes of the files of its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from silva.plan.expr import Call
from silva.serve.index.index import IndexRef
from silva.serve.models.model import Model, ModelRef
from silva.serve.models.opened import models


def open_all(calls: Iterable[Call]) -> list[Any]:
    """Opens the models and indices of these calls. They are open as long as somebody holds what is
    returned. A `StepError` names a model that cannot be opened."""
    held: list[Any] = []
    for call in calls:
        params = dict(call.params)
        for value in params.values():
            if isinstance(value, ModelRef):
                held.extend(map(_opened, _with_fallbacks(value.model)))
            elif isinstance(value, IndexRef):
                contents = value.index.contents()
                contents.load(params["by"])
                held.append(contents)
    return held


def _opened(model: Model) -> Any:
    running = models().running(model)
    running.open(model)
    return running


def _with_fallbacks(model: Model | None) -> Iterator[Model]:
    while model is not None:
        yield model
        model = model.fallback
