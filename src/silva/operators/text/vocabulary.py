"""A vocabulary as the parameter of an operator: compared and fingerprinted by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError
from silva.operators.items.arguments import scalar
from silva.plan.identity import tagged

_MOST = (1 << 31) - 1


@tagged("Vocabulary", "content")
@dataclass(frozen=True, repr=False)
class Vocabulary:
    content: str
    """A hash of the tokens and their ids. They are no field, which would be hashed each time."""

    @property
    def ids(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__["ids_"]
        return found

    def __repr__(self) -> str:
        return f"vocabulary of {len(self.ids)}"


def read_vocabulary(value: Any) -> Vocabulary:
    """A dict from tokens to ids, or a list of tokens whose places are the ids."""
    if isinstance(value, Mapping):
        ids = {token: read_id("an id", number) for token, number in value.items()}
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        ids = {token: place for place, token in enumerate(value)}
        if len(ids) < len(value):
            twice = next(t for place, t in enumerate(value) if ids[t] != place)
            raise PlanError(f"the vocabulary has {twice!r} twice")
    else:
        raise PlanError(f"a vocabulary is a dict or a list of tokens, not {value!r:.60}")
    wrong = next((token for token in ids if not isinstance(token, str)), None)
    if wrong is not None:
        raise PlanError(f"the tokens of a vocabulary are strings, not {wrong!r}")
    content = repr(sorted(ids.items())).encode("utf-8", "backslashreplace")
    made = Vocabulary(hashlib.blake2b(content, digest_size=16).hexdigest())
    made.__dict__["ids_"] = ids
    return made


def read_id(name: str, value: Any) -> int:
    """An id: a whole number that fits into int32."""
    number = scalar(value)
    if isinstance(number, bool) or not isinstance(number, int) or not -_MOST <= number <= _MOST:
        raise PlanError(f"{name} is a whole number that fits into int32, not {value!r}")
    return number
