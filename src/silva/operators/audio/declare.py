"""The declaration of an audio operator: a kernel that makes each row of that row alone."""

from __future__ import annotations

from collections.abc import Callable

from silva.operators.declare import K, column_operator


def audio_operator(name: str, *, random: bool = False) -> Callable[[K], K]:
    """Registers the decorated kernel, `kernel(columns, params, draw)`, as `audio.<name>`."""
    return column_operator(f"audio.{name}", by_row=True, needs=("soundfile", "soxr"), random=random)
