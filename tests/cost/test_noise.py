"""A backend is not chosen by noise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.cost.model import Backend, Load, choose_place, predict

noise = st.floats(0.8, 1.2)


def chosen(load: Load, workers: int) -> Backend:
    return choose_place(load, workers).backend


def measured(load: Load, seconds: float, cpu: float, share: float) -> Load:
    """The load as a noisy measurement finds it."""
    took = load.seconds * seconds
    lock_share = min(load.lock_share * share, 1.0)
    return replace(load, seconds=took, cpu=min(load.cpu * cpu, took), lock_share=lock_share)


@pytest.mark.parametrize("workers", [2, 8, 64])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.9])
@given(noise, noise, noise)
def test_a_fifth_of_noise_does_not_change_the_backend(
    workers: int, share: float, seconds: float, cpu: float, lock: float
) -> None:
    load = Load(1e-3, 1e-3, share, 1000.0)
    assert chosen(measured(load, seconds, cpu, lock), workers) == chosen(load, workers)


@given(st.integers(2, 64), st.floats(0.0, 1.0), st.floats(0.05, 1.0), noise, noise, noise)
def test_a_backend_that_noise_has_chosen_is_nearly_as_fast(
    cores: int, share: float, busy: float, seconds: float, cpu: float, lock: float
) -> None:
    """Where both backends are about as fast, noise may choose either."""
    load = Load(1e-3, busy * 1e-3, share, 1000.0)
    with_noise, without = (
        predict(load, chosen(found, cores), cores, cores).rows_per_second
        for found in (measured(load, seconds, cpu, lock), load)
    )
    assert with_noise > without / 1.5
