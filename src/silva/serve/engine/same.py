"""Equal questions of several requests to one step are asked once.

A request whose rows hold the same values as those of another one, which waits for the same step or
is in it, follows that one and gets a copy of what the step makes. Only steps that the plan knows to
be functions of what they read share; one that turns out to draw random numbers, or to return what
cannot be copied, no longer does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from silva.columns.owned import plain_copy
from silva.physical.stage.context import row_key
from silva.serve.engine.flights import Flight
from silva.serve.engine.units import Effect, Part

_ATOMS = frozenset({type(None), bool, int, str, bytes})


class Unlike(Exception):
    """A value that cannot be compared with others by its contents."""


def key_of(value: Any) -> Hashable:
    """The same for values that no function can tell apart.

    >>> key_of([1, "a"]) == key_of([1, "a"]), key_of(1) == key_of(True), key_of(0.0) == key_of(-0.0)
    (True, False, False)
    """
    kind = type(value)
    if kind in _ATOMS:
        return kind, value
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is list or kind is tuple:
        return kind, tuple(map(key_of, value))
    if kind is dict:
        return kind, tuple((key_of(k), key_of(v)) for k, v in value.items())
    if kind is np.ndarray and not value.dtype.hasobject:
        digest = hashlib.blake2b(value.tobytes(), digest_size=16).digest()
        return kind, value.dtype.str, value.shape, value.strides, digest
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return kind, value.dtype.str, value.tobytes()
    raise Unlike


@dataclass(eq=False)
class _Group:
    """A request, and those that wait for what a step makes of it."""

    key: Hashable
    leader: Flight
    followers: list[Flight] = field(default_factory=list)


class Same:
    """The requests that wait for one step, grouped by the values that it reads."""

    def __init__(self, reads: Sequence[str] | None) -> None:
        """`reads`: the columns that the step reads; None for all."""
        self._reads = reads
        self._by_key: dict[Hashable, _Group] = {}
        self._by_flight: dict[Flight, _Group] = {}

    def enter(self, flight: Flight) -> Flight | None:
        """The request that this one follows; None if it must be asked itself."""
        try:
            key = self._key(flight)
        except (Unlike, RecursionError):
            return None
        group = self._by_key.get(key)
        if group is not None:
            group.followers.append(flight)
            self._by_flight[flight] = group
            return group.leader
        self._by_key[key] = self._by_flight[flight] = _Group(key, flight)
        return None

    def _key(self, flight: Flight) -> Hashable:
        rows = flight.rows
        if self._reads is None:
            return flight.tenant, tuple(map(key_of, rows))
        return flight.tenant, tuple(key_of(row[name]) for row in rows for name in self._reads)

    def leave(self, flight: Flight) -> Flight:
        """The request that was asked for this one, which is given up: itself or another one."""
        group = self._by_flight.get(flight)
        if group is None or group.leader is flight:
            return flight
        group.followers.remove(flight)
        del self._by_flight[flight]
        return group.leader

    def is_awaited(self, leader: Flight) -> bool:
        """Whether anybody awaits what a step makes of this request."""
        return any(not one.over for one in (leader, *self.followers(leader)))

    def followers(self, leader: Flight) -> list[Flight]:
        group = self._by_flight.get(leader)
        return [] if group is None else group.followers

    def settle(self, leader: Flight) -> list[Flight]:
        """Ends a group; returns those that have followed."""
        group = self._by_flight.pop(leader, None)
        if group is None:
            return []
        del self._by_key[group.key]
        for one in group.followers:
            del self._by_flight[one]
        return group.followers


def copied(effect: Effect, part: Part) -> Effect | None:
    """The same effect for another request, which may change its values; None if they cannot be
    copied, or are not those of every request."""
    if effect.drew:
        return None
    try:
        values = {name: list(map(plain_copy, given)) for name, given in effect.values.items()}
    except TypeError:
        return None
    failures = [
        replace(one, key=row_key(part.identity, _place(one.key))) for one in effect.failures
    ]
    return Effect(values, effect.kept, effect.places, failures)


def _place(key: str) -> int | None:
    """The place within an exploded row that a key names."""
    parts = key.split(":")
    return int(parts[2]) if len(parts) > 2 else None
