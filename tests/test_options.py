"""The arguments of `loader` that an editor shows are those that there are."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest

import silva as sv
from silva.options import LoaderArguments, ServiceArguments, ServiceOptions
from silva.pipeline import Pipeline

SHOWN, OWN = (inspect.signature(one).parameters for one in typing.get_overloads(Pipeline.loader))


def test_an_editor_shows_every_argument():
    assert list(OWN) == ["self", "arguments"]
    for verb in (Pipeline.explain, Pipeline.headroom):
        shown = inspect.signature(verb).parameters["arguments"]
        assert shown.annotation == OWN["arguments"].annotation == "Unpack[LoaderArguments]"
    shown, there = map(typing.get_type_hints, (LoaderArguments, sv.LoaderOptions))
    assert shown == there


@pytest.mark.parametrize("verb", [Pipeline.to_parquet, Pipeline.to_tar, Pipeline.to_table])
def test_an_editor_shows_every_argument_of_what_is_written(verb):
    shown = inspect.signature(verb).parameters["arguments"]
    assert shown.annotation == "Unpack[WriteArguments]"


def test_an_editor_shows_every_argument_of_a_service():
    assert list(SHOWN) == ["self", "service", "arguments"]
    for shown in (SHOWN, inspect.signature(sv.connect).parameters):
        assert shown["arguments"].annotation == "Unpack[ServiceArguments]"
    shown, there = map(typing.get_type_hints, (ServiceArguments, ServiceOptions))
    assert shown == there
    own = inspect.signature(sv.Service).parameters["arguments"]
    assert own.annotation == "Unpack[RunArguments]"


def test_options_do_not_change():
    options = sv.LoaderOptions(workers=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.workers = 2
    assert dataclasses.replace(options, workers=2).workers == 2


@pytest.mark.parametrize(
    "wrong", [{"workers": -1}, {"backend": "gpu"}, {"eval": "no"}, {"deadline": 0}, {"cpus": 0}]
)
def test_options_are_checked_when_they_are_made(wrong):
    with pytest.raises(sv.PlanError):
        sv.LoaderOptions(**wrong)
