"""Which request a local model is asked next, of those that wait: one whose prompt begins like that
of the request before it, so that the model need not read that beginning again.

**The rule.** Of the requests that wait, the one comes next that shares most leading fields with the
prompt that was asked last; among equal ones, the one that has waited longest. It may overtake
another one only if that is still in time: behind this one, and behind all that have waited longer
than itself, each as long as a row was measured to take. In time is within the objective. Without
one, or where that is missed even in the order of arrival, it is within half of its deadline, since
a row may take longer than others did. So nobody waits beyond its objective or its deadline for the
prompts of others: where there is no time to spare, requests are asked as they have arrived.

Texts do not change: where a model cuts a prompt depends on the request alone.

Prompts are compared by the values of their fields, since a step has one template. Functions of the
user (`show=`) are not called for it, since it happens on the event loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile

from silva.plan import expr
from silva.serve.engine.flights import Flight
from silva.serve.engine.same import key_of
from silva.serve.engine.units import Row, Unit
from silva.serve.models.model import ModelRef
from silva.serve.models.prompt import Prompt, show_value

Beginning = tuple[Hashable, ...]
"""The tenant, and the fields of a prompt in their order. Tenants share no work of a model, and what
it was asked for one of them says nothing about the order of another one's requests."""
_OPS = frozenset({"model.generate", "model.sample", "model.score"})


@dataclass(eq=False)
class Prefixes:
    """The prompts of one step, which asks a model that keeps the beginning of the one before."""

    call: expr.Call
    prompt: Prompt
    together: int
    """Prompts that the model answers at once."""
    latest: Beginning = ()
    """The prompt that was asked last."""

    @staticmethod
    def of(unit: Unit) -> Prefixes | None:
        """Those of a step; None if its prompts share nothing, or cannot be told beforehand."""
        call = unit.step.runs
        if not isinstance(call, expr.Call) or call.op not in _OPS:
            return None
        if not all(isinstance(one, expr.Col) for one in call.args):
            return None
        params = dict(call.params)
        ref = params.get("model")
        together = ref.model.prompts_at_once if isinstance(ref, ModelRef) else None
        return None if together is None else Prefixes(call, params["prompt"], together)

    def beginning(self, flight: Flight) -> Beginning:
        """The fields of a request's prompt; of several rows, those of the first."""
        if not flight.rows:
            return ()
        parts: list[Hashable] = [flight.tenant.name]
        for column in self.call.args:
            part = self._value(flight.rows[0], column)
            if part is None:
                break
            parts.append(part)
        return tuple(parts)

    def _value(self, row: Row, column: expr.Term) -> Hashable | None:
        """What stands for a value in a prompt; None where it cannot be compared."""
        assert isinstance(column, expr.Col)
        value = row.get(column.name)
        try:
            return show_value(value) if self.prompt.show is None else key_of(value)
        except Exception:  # noqa: BLE001  an object of any class: the step will say what is wrong
            return None

    def ordered(self, waiting: Mapping[Flight, Beginning], free: int) -> Iterator[Flight]:
        """Requests by the rule, from their order of arrival. `free`: so many of the first ones may
        be overtaken by this batch. Whoever takes one says so by `asked` before the next."""
        near = list(islice(waiting, free + 1))
        while near:
            best = max(near, key=lambda flight: self._shared(waiting[flight]))
            near.remove(best)
            yield best
        yield from islice(waiting, free + 1, None)

    def asked(self, beginning: Beginning) -> None:
        """Notes the prompt that the model is asked."""
        self.latest = beginning

    def _shared(self, beginning: Beginning) -> int:
        """The leading fields that a prompt has in common with the latest one, of one tenant."""
        pairs = zip(beginning, self.latest, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return max(same - 1, 0)
