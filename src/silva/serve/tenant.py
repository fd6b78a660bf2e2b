"""For whom a batch runs, as models see it.

The engine runs a unit that asks a model on rows of one tenant alone, and in its name. Answers are
kept, shared while in flight, and paid for under this name. Offline, and in `ask`, nobody is named.

A tenant may listen to a step for one request: it then gets the text as the model generates it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from silva.errors import SilvaError


class BudgetSpent(SilvaError):
    """There is no money left for a call."""


class Purse:
    """What has been spent on models, and what may be: by a tenant, or by all calls of an endpoint.

    Money is set aside before a call, and settled after it.
    """

    def __init__(self, money: float | None = None) -> None:
        self._money = money
        self._lock = threading.Lock()
        self._reserved = 0.0
        self._spent: dict[str, float] = {}

    def add(self, amounts: Mapping[str, float]) -> None:
        """Counts calls and tokens, by their names in `Usage`."""
        with self._lock:
            for name, amount in amounts.items():
                self._spent[name] = self._spent.get(name, 0.0) + amount

    def spent(self, name: str) -> float:
        with self._lock:
            return self._spent.get(name, 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether all the money is spent."""
        return self._money is not None and self.spent("money") >= self._money

    @contextlib.contextmanager
    def reserved(self, most: float) -> Iterator[Callable[[float], None]]:
        """Sets money aside for a call that costs at most so much, so that calls in flight together
        cannot spend more than there is. Yields the function that takes what the call has cost; a
        call that never says may have cost all of it.

        >>> purse = Purse(1.0)
        >>> with purse.reserved(0.75) as settle:
        ...     settle(0.25)
        >>> purse.spent("money")
        0.25
        """
        with self._lock:
            held = self._spent.get("money", 0.0) + self._reserved
            if self._money is not None and most > 0 and held + most > self._money:
                raise BudgetSpent("the money of this token does not suffice for another call")
            self._reserved += most
        cost = most

        def settle(money: float) -> None:
            nonlocal cost
            cost = money

        try:
            yield settle
        finally:
            with self._lock:
                self._reserved -= most
                self._spent["money"] = self._spent.get("money", 0.0) + cost


@dataclass(frozen=True)
class _Listener:
    """Who wants the text of a step as it is generated."""

    step: Hashable
    """What tells the step's call of its model from others. Never the model itself: connections that
    it opens live in a context that holds this, and would keep it open."""
    on_text: Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Tenant:
    """Who has shown a token; for a request whose client listens, this request of it."""

    name: str = ""
    """Part of the key of each answer. Those without one share the answers of offline runs."""
    purse: Purse = field(default_factory=Purse)
    _listener: _Listener | None = None

    def listening(self, step: Hashable, on_text: Callable[[str], None]) -> Tenant:
        """The same tenant, for one request: `on_text` is called, on any thread, with each piece of
        text that a model generates in this step."""
        return replace(self, _listener=_Listener(step, on_text))

    @contextlib.contextmanager
    def step(self, step: Hashable) -> Iterator[None]:
        """Runs the call of a model in this step."""
        listener = self._listener
        heard = listener is not None and listener.step == step
        token = _on_text.set(listener.on_text if heard and listener is not None else None)
        try:
            yield
        finally:
            _on_text.reset(token)


NOBODY = Tenant()
_current: ContextVar[Tenant] = ContextVar("silva_tenant", default=NOBODY)
_on_text: ContextVar[Callable[[str], None] | None] = ContextVar("silva_on_text", default=None)


def current() -> Tenant:
    """The tenant in whose name this thread or task runs."""
    return _current.get()


@contextlib.contextmanager
def acting_for(tenant: Tenant) -> Iterator[None]:
    """Runs a block in the name of a tenant."""
    token = _current.set(tenant)
    try:
        yield
    finally:
        _current.reset(token)


def listener() -> Callable[[str], None] | None:
    """What the text that is generated now is given to, piece by piece; None if nobody listens."""
    return _on_text.get()
