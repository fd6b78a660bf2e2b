"""A backend is not chosen by noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.cost.model import Backend, Placed, Work, choose_place, predict

noise = st.floats(0.8, 1.2)


def chosen(work: Work, workers: int, cores: int) -> Backend:
    return choose_place(work, workers, cores).backend


def python(seconds: float, cpu: float, share: float) -> Work:
    """A row that holds the GIL for a share of its time, at most while it computes."""
    return Work(seconds, cpu, min(seconds * share, cpu), back=1e-6)


def measured(work: Work, seconds: float, cpu: float, share: float) -> Work:
    """The work as a noisy measurement finds it."""
    took = work.seconds * seconds
    held = min(work.lock / work.seconds * share, 1.0)
    return python(took, min(work.cpu * cpu, took), held)


@pytest.mark.parametrize("workers", [2, 8, 64])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.6, 0.9])
@given(noise, noise, noise)
def test_a_fifth_of_noise_does_not_change_the_backend(
    workers: int, share: float, seconds: float, cpu: float, lock: float
) -> None:
    """Of these shares of the GIL, one backend is clearly the faster."""
    work = python(1e-3, 1e-3, share)
    noisy = measured(work, seconds, cpu, lock)
    assert chosen(noisy, workers, workers) == chosen(work, workers, workers)


@given(st.integers(2, 64), st.floats(0.0, 1.0), st.floats(0.05, 1.0), noise, noise, noise)
def test_a_backend_that_noise_has_chosen_is_nearly_as_fast(
    cores: int, share: float, busy: float, seconds: float, cpu: float, lock: float
) -> None:
    """Where both backends are about as fast, noise may choose either."""
    work = python(1e-3, busy * 1e-3, share)
    with_noise, without = (
        predict([Placed("", work, chosen(found, cores, cores), cores)], cores).rows_per_second
        for found in (measured(work, seconds, cpu, lock), work)
    )
    assert with_noise > without / 1.5
