"""Requests over HTTP: every one ends in exactly one reply, of the right kind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Upstream
from tests.serve.http_tools import client, metric

import silva as sv


def test_each_end_of_a_request_has_its_status(upstream: Upstream) -> None:
    def half(x):
        return 10 / x

    pipeline = sv.requests("x").derive(y=half).filter(sv.col("y") > 0)
    with client(pipeline, request_bytes=100) as http:
        assert http.post("/", json={"x": 4}).json() == {"x": 4, "y": 2.5}
        dropped = http.post("/", json={"x": -4})
        assert (dropped.status_code, list(dropped.json())) == (200, ["filtered"])
        failed = http.post("/", json={"x": 0})
        assert failed.status_code == 422
        assert failed.json()["request"] == failed.headers["x-request-id"]
        assert ".py" not in failed.text  # where the code lies is the server's own affair
        for body in ({"z": 1}, {"x": 1, "z": 1}, [1], "x"):
            assert http.post("/", json=body).status_code == 422
        assert http.post("/", content=b"{").status_code == 422
        assert http.post("/", content=b"[" * 5000).status_code in (413, 422)
        assert http.post("/", json={"x": "a" * 200}).status_code == 413
        assert http.get("/").status_code == 405
        assert http.post("/other", json={"x": 1}).status_code == 404
        wrong = {"authorization": "Bearer no"}
        assert http.post("/", json={"x": 1}, headers=wrong).status_code == 401
        assert 'silva_replies_total{status="401"} 1' in http.get("/metrics").text
        assert httpx.get(http.base_url.join("/metrics")).status_code == 401
        assert httpx.get(http.base_url.join("/health")).json() == {}


def test_an_upstream_that_fails_is_a_502_and_a_late_one_a_504(upstream: Upstream) -> None:
    pipeline = sv.requests("q").derive(a=upstream.model(concurrency=2).generate("{q}"))
    with client(pipeline, deadline=1.0) as http:
        upstream.script = [400]
        assert http.post("/", json={"q": "a"}).status_code == 502
        upstream.script = [2.5]
        assert http.post("/", json={"q": "b"}).status_code == 504
        assert http.post("/", json={"q": "c"}).json() == {"q": "c", "a": "<c>"}


def test_substitutes_are_named() -> None:
    def half(x):
        return 10 / x

    with client(sv.requests("x").derive(y=half), on_error=sv.Substitute(-1.0)) as http:
        reply = http.post("/", json={"x": 0}).json()
    assert reply["y"] == -1.0
    assert reply["substituted"] == ["y = half(x)"]


def test_run_and_serve_give_the_same_bytes(upstream: Upstream) -> None:
    import msgspec

    rows = [{"q": f"question {n % 20}"} for n in range(60)]
    pipeline = (
        sv.requests("q")
        .derive(v=upstream.model().embed("q"))
        .derive(a=upstream.model().generate("Say {q}"), n=lambda v: float(v.sum()))
    )
    with client(pipeline) as http:
        online = [http.post("/", json=row).content for row in rows]
    offline = [msgspec.json.encode({**row, "v": row["v"].tolist()}) for row in pipeline.run(rows)]
    assert online == offline


OWN = "/srv/secret-place"


def fails(error: BaseException) -> Any:
    def step(x):
        raise error

    return sv.requests("x").derive(y=step)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError(f"cannot read {OWN}"), 422),
        (FileNotFoundError(2, "No such file", OWN), 422),
        (sv.PlanError(f"there is no index at {OWN}"), 422),
        (sv.StepError(f"{OWN} cannot be opened"), 502),
        (sv.SourceError(f"{OWN} has changed"), 422),
    ],
)
def test_no_reply_holds_what_is_the_server_s_own(error: BaseException, status: int) -> None:
    with client(fails(error)) as http:
        reply = http.post("/", json={"x": 1})
    assert reply.status_code == status
    assert OWN not in reply.text
    assert "/" not in reply.json()["error"]["message"]


def test_no_reply_holds_an_address_a_folder_or_a_constant(
    upstream: Upstream, tmp_path: Path
) -> None:
    folder = str(tmp_path / "index")
    index = sv.from_columns({"text": ["a b", "c d"]}).to_index(folder, keyword="text", workers=0)
    pipeline = (
        sv.requests("q", "n")
        .filter(sv.col("n") != 4711)
        .derive(hits=index.search("q"))
        .derive(a=upstream.model(concurrency=2).generate("{hits}{q}"))
    )
    with client(pipeline, deadline=1.0) as http:
        upstream.script = [400, 2.5]
        replies = [
            http.post("/", json={"q": "a", "n": 4711}),
            http.post("/", json={"q": 7, "n": 1}),
            http.post("/", json={"q": "a", "n": 1}),
            http.post("/", json={"q": "b", "n": 1}),
        ]
        assert [reply.status_code for reply in replies] == [200, 422, 502, 504]
        texts = [*(reply.text for reply in replies), http.get("/metrics").text]
    assert replies[0].json() == {"filtered": "filter by n"}
    assert [reply.json()["error"]["step"] for reply in replies[1:]] == ["hits", "a", "a"]
    for own in (folder, str(tmp_path), "127.0.0.1", "http:", "4711", ".py"):
        assert not any(own in text for text in texts)


def test_a_late_reply_names_the_function_and_not_its_file() -> None:
    go = threading.Event()

    def wait(x):
        go.wait(timeout=30)
        return x

    with client(sv.requests("x").derive(y=wait), deadline=0.2) as http:
        reply = http.post("/", json={"x": 1})
        go.set()
    assert reply.status_code == 504
    assert reply.json()["error"]["step"] == "y = wait(x)"
    assert ".py" not in reply.text


def test_a_function_tells_the_client_what_is_wrong() -> None:
    with client(fails(sv.RequestError("x is too large"))) as http:
        reply = http.post("/", json={"x": 1})
    assert reply.status_code == 422
    assert reply.json()["error"]["message"] == "x is too large"


def test_an_error_whose_text_cannot_be_had_is_answered_all_the_same() -> None:
    class Silent(sv.RequestError):
        def __str__(self) -> str:
            raise RuntimeError

    with client(fails(Silent())) as http:
        reply = http.post("/", json={"x": 1})
    assert reply.status_code == 422
    assert reply.json()["error"]["kind"] == "request"


def test_the_log_holds_what_a_reply_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    with client(fails(ValueError("no disk"))) as http:
        request = http.post("/", json={"x": 1}).headers["x-request-id"]
    assert any(request in m and "no disk" in m for m in caplog.messages)


@pytest.mark.parametrize("name", ["filtered", "substituted", "rows", "error"])
def test_a_column_that_a_reply_could_be_mistaken_for_is_refused(name: str) -> None:
    with pytest.raises(sv.PlanError, match=f"rename the column '{name}'"):
        sv.requests("x").derive(**{name: sv.col("x")}).asgi()
    assert sv.requests(name).ask(**{name: 1}) == {name: 1}


def test_what_has_no_json_form_is_named() -> None:
    pipeline = sv.requests("x").derive(y=lambda x: object(), z=lambda x: x)
    with client(pipeline) as http:
        reply = http.post("/", json={"x": 1})
    assert (reply.status_code, reply.json()["error"]["kind"]) == (500, "answer")
    assert "'y'" in reply.text


def test_large_integers_are_refused_on_their_way_in_and_written_on_their_way_out() -> None:
    with client(sv.requests("x").derive(y=lambda x: x * 10**12)) as http:
        reply = http.post("/", content=b'{"x": 123456789012345678901234567890}')
        assert (reply.status_code, reply.json()["error"]["kind"]) == (422, "request")
        assert http.post("/", json={"x": 10**12}).json() == {"x": 10**12, "y": 10**24}


def test_a_substitute_is_named_also_where_a_filter_drops_it() -> None:
    pipeline = sv.requests("x").derive(y=lambda x: 1 / x).filter(sv.col("y") > 0)
    with client(pipeline, on_error=sv.Substitute(-1.0)) as http:
        reply = http.post("/", json={"x": 0})
        assert reply.status_code == 200
        assert reply.json() == {"filtered": "filter by y", "substituted": ["y = lambda(x)"]}
        assert metric(http, 'silva_step_substitutes_total{step="y = lambda(x)"}') == 1


def test_a_skipped_request_is_answered_and_counted() -> None:
    with client(sv.requests("x").derive(y=lambda x: 1 / x), on_error=sv.Skip()) as http:
        assert [http.post("/", json={"x": x}).status_code for x in (0, 1, 0)] == [422, 200, 422]
        assert metric(http, 'silva_step_skips_total{step="y = lambda(x)"}') == 2


def test_metrics_have_each_series_once(upstream: Upstream) -> None:
    pipeline = (
        sv.requests("x").filter(lambda x: x > 0).filter(lambda x: x > 1).derive(y=lambda x: x)
    ).derive(a=upstream.model(price=(1e6, 2e6)).generate("{y}"))
    with client(pipeline) as http:
        http.post("/", json={"x": 5})
        lines = http.get("/metrics").text.splitlines()
        series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
        assert len(series) == len(set(series))
        kinds = [line for line in lines if line.startswith("#")]
        assert len(kinds) == len(set(kinds))
        assert metric(http, 'silva_request_seconds_bucket{le="+Inf"}') == 1
        assert metric(http, "silva_request_seconds_count") == 1
        assert metric(http, 'silva_model_prompt_tokens_total{tenant=""}') == 10
        assert metric(http, 'silva_model_money_total{tenant=""}') == 10 + 2 * 5
