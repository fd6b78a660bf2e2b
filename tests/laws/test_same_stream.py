"""Promise 1: one stream, whatever runs it. Pipelines are drawn at random from all verbs."""

from __future__ import annotations

import pytest
from fuzz_strategy import pipelines
from hypothesis import given, settings

from silva.testing import assert_same_stream


@given(pipelines())
@settings(max_examples=10)
def test_any_pipeline_gives_one_stream_in_this_process(pipeline):
    assert_same_stream(
        pipeline, backends=("inline", "threads"), workers=(1, 3), fresh_process=False
    )


@given(pipelines())
@settings(max_examples=2)
def test_any_pipeline_gives_one_stream_in_processes_too(pipeline):
    assert_same_stream(pipeline, backends=("processes",), workers=(1, 2))


@pytest.mark.rest
@given(pipelines())
@settings(max_examples=60)
def test_any_pipeline_gives_one_stream_with_five_processes(pipeline):
    assert_same_stream(pipeline)
