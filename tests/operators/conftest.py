"""A test that is marked with operators must use one of them: see `test_every_operator.py`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from silva.plan import operator as operators


class Recording(dict[str, Any]):
    """The registry, noting which operators are looked up."""

    def __init__(self, registry: dict[str, Any]) -> None:
        super().__init__(registry)
        self.used: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        return super().get(name, default)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    marker = item.get_closest_marker("operators")
    if marker is None:
        return (yield)
    operators.import_built_in()
    registry = operators._OPERATORS
    recording = Recording(registry)
    operators._OPERATORS = recording
    try:
        result = yield
    finally:
        operators._OPERATORS = registry
    if not recording.used & set(marker.args):
        pytest.fail(f"the test uses none of its operators: {', '.join(marker.args)}")
    return result
