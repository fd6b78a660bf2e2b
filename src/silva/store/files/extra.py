"""Optional libraries that tables need."""

from __future__ import annotations

import importlib
from typing import Any

from silva.errors import PlanError


def extra(module: str) -> Any:
    """Imports a module of the extra `silva[store]`.

    >>> extra("lance_of_old")
    Traceback (most recent call last):
    silva.errors.PlanError: tables need lance_of_old: pip install 'silva[store]'
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise PlanError(f"tables need {name}: pip install 'silva[store]'") from None
