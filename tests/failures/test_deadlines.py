"""No wait is for ever: a step or source that hangs ends the loop with its name and every stack."""

from __future__ import annotations

import threading

import pytest
from failure_tools import taken, worker_pids

import silva as sv
from silva.testing import cut_blocks

RELEASE = threading.Event()
"""Lets hung threads go when a test is over: they cannot be killed, and others check for them."""


@pytest.fixture(autouse=True)
def _release():
    RELEASE.clear()
    yield
    RELEASE.set()


def hang_forever(x):
    if x == 9:
        RELEASE.wait()
    return x


@pytest.mark.parametrize("backend", [pytest.param("threads", marks=pytest.mark.rest), "processes"])
def test_a_step_that_hangs_is_named_with_every_stack(backend):
    pipeline = sv.from_columns({"x": range(40)}).derive(y=hang_forever).batch(4)
    loader = cut_blocks(pipeline.loader(backend=backend, workers=2, deadline=4), [2])
    found, error = taken(loader)
    assert isinstance(error, sv.DeadlineError)
    assert len(found) == 2, "what came before is handed out"
    message = str(error)
    assert "deadline=4" in message
    assert "hang_forever" in message.partition("\n")[0], "the step"
    assert "test_deadlines.py" in message.partition("\n")[2], "the stack"
    assert "rows 8 to 9" in message
    assert not worker_pids()
    loader.close()


class StuckStream:
    """A stream of samples, as torch users write them, that hangs after a while."""

    def __iter__(self):
        for i in range(300):
            yield {"x": i}
        RELEASE.wait()


@pytest.mark.rest
def test_a_source_that_hangs_is_named_with_its_stack():
    pipeline = sv.from_torch(StuckStream(), columns=["x"]).derive(y=lambda x: x + 1).batch(64)
    loader = pipeline.loader(backend="threads", workers=2, deadline=4)
    with pytest.raises(sv.DeadlineError) as raised:
        list(loader)
    assert "StuckStream" in str(raised.value)
    assert "RELEASE.wait()" in str(raised.value)
    RELEASE.set()
    loader.close()


def test_closing_does_not_wait_for_a_thread_that_hangs():
    pipeline = sv.from_columns({"x": range(40)}).derive(y=hang_forever).batch(4)
    loader = cut_blocks(pipeline.loader(backend="threads", workers=2, deadline=600), [2])
    batches = iter(loader)
    next(batches)
    next(batches)
    closing = threading.Thread(target=batches.close)
    closing.start()
    closing.join(timeout=60)
    assert not closing.is_alive()
