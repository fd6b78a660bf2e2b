"""Limits on requests, checked before a request is used."""

from __future__ import annotations

from typing import Any

from silva.errors import PlanError, StateError
from silva.service.wire import BatchRequest, OpenRequest, StreamKey

REQUEST_BYTES = 4 << 20
"""The largest request, in bytes: a state has a few kilobytes."""
_DEEPEST = 64
"""How deep the lists and maps of a state may be nested."""
_NAME = 256
"""The longest name, in characters."""
_RANKS = 1 << 16
"""The most ranks of a job."""
_SHARDS = 1 << 12
"""The most shards per rank: each takes memory, and a state says how many there are."""
_NUMBER = 1 << 53
"""The largest epoch or step: the largest integer that JSON holds in every language."""
_SEED = 1 << 64
_RESPONSE_BYTES = 64 << 20
"""Bytes after which no further batch is added to a response, whatever the reader asks for."""


def check_open(request: OpenRequest) -> None:
    _check_stream(request.stream)
    _between("epoch", request.epoch, 0, _NUMBER)
    if request.state is not None:
        check_size(request.state, request.stream.world)


def check_next(request: BatchRequest) -> None:
    _check_stream(request.stream)
    _check_name("reader", request.reader)
    _between("part", request.part, 0, max(request.stream.parts, 1) - 1)
    request.limit = min(max(request.limit, 0), _RESPONSE_BYTES)
    check_size(request.state, request.stream.world)


def _check_stream(stream: StreamKey) -> None:
    _check_name("pipeline", stream.pipeline)
    _between("world", stream.world, 1, _RANKS)
    _between("rank", stream.rank, 0, stream.world - 1)
    _between("parts", stream.parts, 0, _RANKS)
    if stream.parts and stream.world != 1:
        raise PlanError("a stream has parts or ranks, but not both")
    if stream.seed is not None:
        _between("seed", stream.seed, -_SEED, _SEED)
    if stream.steps is not None:
        _between("steps", stream.steps, 1, _NUMBER)


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= _NAME:
        raise PlanError(f"{what} is a name of 1 to {_NAME} characters, not of {len(name)}")


def _between(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise PlanError(f"{what} is a whole number from {least} to {most}, not {value!r:.40}")


def check_size(state: dict[str, Any], world: int) -> None:
    """Raises for a state that would take more memory or time than any state of a loader. The loader
    checks whether it belongs to the pipeline."""
    for name, least, most in (
        ("shards", 1, _SHARDS * world),
        ("epoch", 0, _NUMBER),
        ("step", 0, _NUMBER),
        ("seed", -_SEED, _SEED),
    ):
        value = state.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise StateError(
                f"`{name}` of a state is a whole number from {least} to {most}, not {value!r:.40}"
            )
    if state.get("shards", world) % world:
        raise StateError(
            f"the state has {state['shards']} shards, which {world} ranks cannot share equally"
        )
    if not isinstance(state.get("cursors", {}), dict):
        raise StateError("`cursors` of a state is a map from shards to positions")
    level: list[Any] = [state]
    for _ in range(_DEEPEST):
        inner = [x.values() if isinstance(x, dict) else x for x in level]
        level = [y for x in inner for y in x if isinstance(y, dict | list)]
        if not level:
            return
    raise StateError(f"the lists and maps of a state are nested at most {_DEEPEST} deep")
