"""What models were asked, and what that cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields

from silva.serve.tenant import current


@dataclass
class Usage:
    """Counters of one open model. They only grow."""

    calls: int = 0
    """Requests that were sent, or items that were computed."""
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    """Tokens of prompts that were really evaluated; less than `prompt_tokens` where prefixes are
    shared."""
    answer_tokens: int = 0
    money: float = 0.0
    """In the currency of the price that was given."""


class Meter:
    """Counts from several threads, for a model and for the tenant in whose name it is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()

    def add(self, **amounts: float) -> None:
        # money was set aside in the purse, which settles it itself
        current().purse.add({name: n for name, n in amounts.items() if name != "money"})
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._usage, name, getattr(self._usage, name) + amount)

    def read(self) -> Usage:
        with self._lock:
            return Usage(*(getattr(self._usage, one.name) for one in fields(Usage)))
