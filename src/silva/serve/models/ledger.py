"""What the answers to the rows of a turn cost: those that were asked for, and those that were kept.

The costs of a row are a function of its answers alone, so they do not depend on who asked first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silva.serve.models.model import Answer

RowKey = tuple[int, int]
"""A row's identity, and its place within an exploded row or its turn."""
Spent = tuple[int, float]
"""Tokens and money."""


class Ledger:
    """What each row has spent."""

    def __init__(self) -> None:
        self._spent: dict[RowKey, Spent] = {}

    def note(self, spent: Mapping[RowKey, Spent]) -> None:
        """Adds what one call has cost each row. Rows of one key are equal, and count once.

        >>> book = Ledger()
        >>> book.note({(7, 0): (10, 0.5)})
        >>> book.note({(7, 0): (5, 0.25)})
        >>> book.of((7, 0)), book.of((8, 0))
        ((15, 0.75), (0, 0.0))
        """
        for key, (tokens, money) in spent.items():
            before = self.of(key)
            self._spent[key] = before[0] + tokens, before[1] + money

    def note_answers(
        self,
        rows: Sequence[RowKey],
        answers: Sequence[Answer | Exception],
        price: tuple[float, float],
    ) -> None:
        """Adds the answers to some rows; the price is that of a million tokens of each kind."""
        spent = {}
        for row, one in zip(rows, answers, strict=True):
            if not isinstance(one, Exception):
                prompt, answer = one.prompt_tokens, one.answer_tokens
                money = (prompt * price[0] + answer * price[1]) / 1e6
                spent[row] = prompt + answer, money
        self.note(spent)

    def of(self, key: RowKey) -> Spent:
        return self._spent.get(key, (0, 0.0))

    @contextlib.contextmanager
    def applies(self) -> Iterator[Ledger]:
        """Notes in this ledger what this thread asks."""
        token = _ledger.set(self)
        try:
            yield self
        finally:
            _ledger.reset(token)


_ledger: ContextVar[Ledger | None] = ContextVar("silva_ledger", default=None)


def ledger() -> Ledger | None:
    """Where this thread notes what rows spend; None if nobody wants to know."""
    return _ledger.get()
