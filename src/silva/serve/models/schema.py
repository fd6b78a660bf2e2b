"""The shape of an answer: JSON whose keys become columns."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from silva.errors import ColumnError, PlanError
from silva.plan.class_tags import tagged

_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
}


@tagged("Schema", "fields")
@dataclass(frozen=True)
class Schema:
    """The keys that an answer must have, and the type of each."""

    fields: tuple[tuple[str, str | tuple[str, ...]], ...]
    """Pairs (key, type); a tuple of texts is a choice of one of them."""

    @staticmethod
    def of(given: Any) -> Schema | None:
        """A schema from a dict such as `{"name": str, "kind": ["person", "place"]}`.

        >>> Schema.of({"name": str, "kind": ["person", "place"]}).names
        ('name', 'kind')
        """
        if given is None:
            return None
        if not isinstance(given, Mapping) or not given:
            raise PlanError(
                f'schema= takes the keys and their types, {{"name": str}}, not {given!r}'
            )
        return Schema(tuple((_key(key), _type(key, kind)) for key, kind in given.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)

    def json_schema(self) -> dict[str, Any]:
        """The schema in JSON Schema, as endpoints take it."""
        return {
            **msgspec.json.schema(self._struct)["$defs"]["Answer"],
            "additionalProperties": False,
        }

    @functools.cached_property
    def _struct(self) -> type[msgspec.Struct]:
        import typing

        fields = [
            (name, typing.Literal[kind] if isinstance(kind, tuple) else _TYPES[kind])
            for name, kind in self.fields
        ]
        return msgspec.defstruct("Answer", fields, forbid_unknown_fields=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": self.fields}

    def parse(self, text: str) -> tuple[Any, ...]:
        """The values in an answer, by the order of the keys.

        >>> schema = Schema.of({"age": int})
        >>> schema.parse('Here it is: ```json\\n{"age": 3}\\n```')
        (3,)
        """
        found = _json_in(text)
        try:
            made = msgspec.json.decode(found, type=self._struct)
        except msgspec.DecodeError as error:
            raise ColumnError(f"the answer does not fit its schema: {error}") from None
        return tuple(getattr(made, name) for name in self.names)

    def request(self) -> str:
        """The instruction that asks for such an answer."""
        schema = json.dumps(self.json_schema())
        return f"Answer with one JSON object and nothing else. Its schema: {schema}"


def _json_in(text: str) -> bytes:
    """The outermost JSON object in a text: models put words and fences around it."""
    first, last = text.find("{"), text.rfind("}")
    if first < 0 or last < first:
        raise ColumnError("the answer does not fit its schema: there is no JSON object in it")
    return text[first : last + 1].encode("utf-8", "replace")


def _key(key: Any) -> str:
    if not isinstance(key, str) or not key.isidentifier():
        raise PlanError(f"a key of schema= is a plain name, not {key!r}")
    return key


def _type(key: str, kind: Any) -> str | tuple[str, ...]:
    if isinstance(kind, list | tuple) and kind and all(isinstance(one, str) for one in kind):
        return tuple(kind)
    name = (
        kind.__name__ if isinstance(kind, type) and kind in (str, int, float, bool) else str(kind)
    )
    if name not in _TYPES:
        raise PlanError(
            f"schema= has no type {kind!r} for {key!r}: take {', '.join(_TYPES)}, or a list of "
            "texts"
        )
    return name
