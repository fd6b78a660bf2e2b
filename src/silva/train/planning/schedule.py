"""The order in which stages of a pipeline work on microbatches, as torch's schedules have it."""

from __future__ import annotations

from typing import NamedTuple

from silva.train.choice import Choice


class Action(NamedTuple):
    """A forward or a backward pass of a part of the module on a microbatch."""

    kind: str
    """`F` or `B`."""
    stage: int
    microbatch: int


def schedule(choice: Choice) -> list[list[Action]]:
    """What each rank of the pipeline does, in its order.

    >>> ["".join(map(str, a)) for a in schedule(Choice(pp=2, microbatches=2))[0]]
    ['F00', 'F01', 'B00', 'B01']
    """
    if choice.schedule == "interleaved" and choice.pp > 1:
        return [_interleaved(choice, rank) for rank in range(choice.pp)]
    warm = choice.microbatches if choice.schedule == "gpipe" else 0
    return [_one_by_one(choice, rank, warm) for rank in range(choice.pp)]


def _one_by_one(choice: Choice, rank: int, warm: int) -> list[Action]:
    """1F1B: as many forward passes first as there are stages from here on, then in turns."""
    count = choice.microbatches
    ahead = min(count, max(warm, choice.pp - rank))
    forward = [Action("F", rank, i) for i in range(count)]
    backward = [Action("B", rank, i) for i in range(count)]
    found = forward[:ahead]
    for i in range(count):
        found.append(backward[i])
        found += forward[ahead + i : ahead + i + 1]
    return found


def _interleaved(choice: Choice, rank: int) -> list[Action]:
    """Interleaved 1F1B: groups of as many microbatches as there are ranks go through the first part
    of each rank, then the second one, and so on; backward the other way round."""
    ranks, rounds, count = choice.pp, choice.rounds, choice.microbatches
    total = rounds * count
    warm = min(total, (rounds - 1) * ranks + 2 * (ranks - 1 - rank))

    def action(kind: str, number: int) -> Action:
        cycle, inside = divmod(number, ranks * rounds)
        part = inside // ranks
        part = part if kind == "F" else rounds - 1 - part
        return Action(kind, rank + part * ranks, cycle * ranks + inside % ranks)

    forward = [action("F", i) for i in range(total)]
    backward = [action("B", i) for i in range(total)]
    found = forward[:warm]
    for i in range(total - warm):
        found += [forward[warm + i], backward[i]]
    return found + backward[total - warm :]


def most_in_flight(actions: list[Action]) -> dict[int, int]:
    """The largest number of microbatches whose activations a part keeps at once, by part."""
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    for kind, stage, _ in actions:
        now[stage] = now.get(stage, 0) + (1 if kind == "F" else -1)
        most[stage] = max(most.get(stage, 0), now[stage])
    return most
