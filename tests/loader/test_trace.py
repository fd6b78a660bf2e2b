"""The trace of a real run has the form of a simulated one."""

from __future__ import annotations

import json

import pytest

import silva as sv
from silva.cost.trace import save_traces


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_trace_holds_every_block_and_the_loop_between_them(backend, tmp_path) -> None:
    rows = sv.from_columns({"x": range(400)}).derive(y=lambda x: x + 1).batch(8)
    with rows.loader(backend=backend, workers=2) as loader:
        for _ in loader:
            pass
        trace, found = loader.trace(), loader.what_if(workers=2)
    assert {span.resource for span in trace.spans} == {f"stage 1 ({backend})", "the loop"}
    assert trace.work(f"stage 1 ({backend})") == 400
    assert min(span.start for span in trace.spans) == 0
    assert all(span.start <= span.end for span in trace.spans)
    path = save_traces(tmp_path / "both.json", {"real": trace, "simulated": found.trace})
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}


def test_a_report_or_a_trace_that_cannot_be_written_is_an_error_of_silvas(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with sv.from_columns({"x": range(4)}).batch(2).loader(backend="inline") as loader:
        for write in (loader.report, loader.trace().save):
            with pytest.raises(sv.FolderError, match=r"No such file or directory\. Create"):
                write(tmp_path / "missing" / "page")
            with pytest.raises(sv.FolderError, match="Is a directory"):
                write(tmp_path)
            with pytest.raises(sv.FolderError, match="Not a directory"):
                write(str(tmp_path / "file" / "page"))
            with pytest.raises(sv.PlanError, match="takes a path, not 3"):
                write(3)


def test_a_loader_that_has_not_run_has_an_empty_trace() -> None:
    with sv.from_columns({"x": range(4)}).batch(2).loader() as loader:
        assert loader.trace().spans == ()
        assert loader.trace().makespan == 0
