"""What models were asked, and what that cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields


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


class Purse:
    """The money that calls may cost in all; None for any amount."""

    def __init__(self, money: float | None) -> None:
        self._lock = threading.Lock()
        self._left = money

    def take(self, money: float) -> bool:
        """Sets money aside for a call; False if there is not so much left.

        >>> purse = Purse(1.0)
        >>> purse.take(0.75), purse.take(0.75), purse.give_back(0.5), purse.take(0.75)
        (True, False, None, True)
        """
        with self._lock:
            if self._left is None:
                return True
            if money > self._left:
                return False
            self._left -= money
            return True

    def give_back(self, money: float) -> None:
        """Returns what a call has not cost."""
        with self._lock:
            if self._left is not None:
                self._left += money


class Meter:
    """Counts from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()

    def add(self, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._usage, name, getattr(self._usage, name) + amount)

    def read(self) -> Usage:
        with self._lock:
            return Usage(*(getattr(self._usage, one.name) for one in fields(Usage)))
