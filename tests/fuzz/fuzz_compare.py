"""Whether two ways to run a pipeline gave the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from fuzz_ways import Different, Outcome


def compare(
    expected: Outcome,
    found: Outcome,
    how: str,
    epochs: int,
    what: str = "way",
    *,
    restored: bool = False,
    as_far_as_both: bool = False,
) -> None:
    """Raises `Different` unless `found` is the first epochs of `expected`. `restored`: rows before
    the state may fail again. `as_far_as_both`: either may end before the other."""
    if as_far_as_both:
        for epoch in range(min(epochs, len(expected.epochs), len(found.epochs))):
            both = min(len(expected.epochs[epoch]), len(found.epochs[epoch]))
            ours = replace(expected, epochs=[e[:both] for e in expected.epochs])
            _same_batches(ours, found, epoch, found.epochs[epoch][:both], how, what)
        return
    for epoch in range(min(epochs, len(expected.epochs))):
        last = epoch == len(expected.epochs) - 1 and expected.error is not None
        theirs = found.epochs[epoch] if epoch < len(found.epochs) else []
        _same_batches(expected, found, epoch, theirs, how, what)
        error = found.error if epoch == len(found.epochs) - 1 or not found.epochs else None
        wanted = expected.error if last else None
        if error != wanted:
            raise Different(
                f"{what} error", f"{how}: epoch {epoch} ended with {error}, not {wanted}"
            )
        _same_failures(expected, found, epoch, how, what, restored=restored and epoch == 0)


def _same_batches(
    expected: Outcome, found: Outcome, epoch: int, theirs: list[str], how: str, what: str
) -> None:
    ours = expected.epochs[epoch]
    if theirs == ours:
        return
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            raise Different(
                f"{what} batch",
                f"{how}: batch {i} of epoch {epoch} differs:\n  expected "
                f"{shown(expected.batches[epoch][i])}\n  found    {shown(found.batches[epoch][i])}",
            )
    more = f"found ended with {found.error}" if found.error else ""
    raise Different(
        f"{what} count",
        f"{how}: {len(theirs)} batches in epoch {epoch}, not {len(ours)} "
        f"({more}; expected ended with {expected.error})",
    )


def _same_failures(
    expected: Outcome, found: Outcome, epoch: int, how: str, what: str, *, restored: bool
) -> None:
    ours = expected.failures[epoch] if epoch < len(expected.failures) else []
    theirs = found.failures[epoch] if epoch < len(found.failures) else []
    if restored and not Counter(theirs) - Counter(ours):
        return  # rows before the state that are read again (a window, a chunk) fail again
    if ours != theirs:
        raise Different(
            f"{what} failures",
            f"{how}: failures of epoch {epoch}:\n  expected {ours}\n  found    {theirs}",
        )


def shown(batch: Any) -> str:
    """A batch with the types that a digest sees."""
    if not isinstance(batch, dict):
        return repr(batch)
    return "{" + ", ".join(f"{name!r}: {_shown(value)}" for name, value in batch.items()) + "}"


def _shown(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    told = f"{type(value).__name__}"
    return f"{told}[{dtype}] {value!r:.160}" if dtype is not None else f"{told} {value!r:.160}"
