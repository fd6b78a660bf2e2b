"""Where a stage runs when its steps have become others."""

from __future__ import annotations

from typing import Any

import silva as sv
from silva.physical.written_form import segments
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane


def stage(**steps: Any) -> Any:
    """The only stage of a pipeline of these steps."""
    rows = sv.from_columns({"x": [b""]}).derive(**steps).select(*steps).batch(1)
    with rows.options(optimize=False).loader() as loader:
        [segment] = segments(loader._planner.physical())
    return segment.stage


def on_threads(first: Any) -> Lane:
    lane = Lane(first, "stage 1", None, 2, MemoryBudget(1 << 20))
    lane.move("threads", "it is faster there")
    lane.decided = True
    return lane


def test_operators_that_are_called_otherwise_stay_where_they_are():
    image = sv.image("x").decode()
    lane = on_threads(stage(image=image.grayscale().center_crop(8)))
    lane.follow(stage(image=image.center_crop(8).grayscale()))
    assert (lane.backend, lane.decided) == ("threads", True)


def test_other_steps_are_measured_anew():
    image = sv.image("x").decode()
    lane = on_threads(stage(image=image))
    lane.follow(stage(image=image, size=sv.image("x").info()))
    assert (lane.backend, lane.decided) == ("inline", False)


def test_functions_are_measured_anew():
    lane = on_threads(stage(y=lambda x: x))
    lane.follow(stage(y=lambda x: x[::-1]))
    assert (lane.backend, lane.decided) == ("inline", False)
