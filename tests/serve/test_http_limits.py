"""What tokens allow: how often, how many at once, how much, and whose answers they get."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Upstream
from tests.serve.http_tools import TOKENS, client, metric, shows

import silva as sv
from silva.serve.http.access import Bucket
from silva.serve.tenant import BudgetSpent, Purse

ANN, BOB = TOKENS["ann"], TOKENS["bob"]


def post(http: httpx.Client, token: str, row: dict[str, Any]) -> httpx.Response:
    return http.post("/", json=row, headers=shows(token))


class Gate:
    """A step that waits until it is opened."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def pipeline(self) -> sv.Pipeline:
        def wait(x):
            self.began.set()
            self.go.wait(timeout=30)
            return x

        return sv.requests("x").derive(y=wait)


def test_too_many_requests_are_told_when_to_come_again() -> None:
    gate = Gate()
    with client(gate.pipeline(), most=1) as http, ThreadPoolExecutor() as pool:
        first = pool.submit(http.post, "/", json={"x": 1})
        gate.began.wait(timeout=30)
        refused = http.post("/", json={"x": 2})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        gate.go.set()
        assert first.result().status_code == 200


def test_a_slow_rate_admits_the_first_request() -> None:
    with client(sv.requests("x"), rate=0.5) as http:
        assert http.post("/", json={"x": 0}).status_code == 200
        refused = http.post("/", json={"x": 0})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] in ("1", "2")


def test_a_rate_admits_bursts_of_a_second_and_no_more() -> None:
    bucket, admitted = Bucket(3.0), 0
    for tick in range(100):  # ten seconds in steps of a tenth
        while not bucket.wait(tick / 10):
            bucket.take(1)
            admitted += 1
    assert admitted == 3 + int(3 * 9.9)


def test_what_is_used_beyond_the_rest_is_paid_back() -> None:
    bucket = Bucket(100.0)
    assert not bucket.wait(0.0)
    bucket.take(350)
    assert bucket.wait(0.0) == pytest.approx(2.51)
    assert bucket.wait(2.0) == pytest.approx(0.51)
    assert not bucket.wait(2.6)


def test_each_token_has_its_own_rate_bytes_and_places() -> None:
    gate = Gate()
    token = {
        "ann": sv.Access(ANN, in_flight=1),
        "bob": sv.Access(BOB, metrics=True),
        "cas": sv.Access("sixteen-chars-cas", rate=0.001),
        "dan": sv.Access("sixteen-chars-dan", bytes=100),
    }
    with client(gate.pipeline(), token=token) as http, ThreadPoolExecutor() as pool:
        first = pool.submit(post, http, ANN, {"x": 1})
        gate.began.wait(timeout=30)
        assert post(http, ANN, {"x": 2}).status_code == 429
        gate.go.set()
        assert first.result().status_code == 200
        for name in ("cas", "dan"):
            long = {"x": "a" * 10_000}
            found = [post(http, token[name].token, long).status_code for _ in range(2)]
            assert found == [200, 429]
        assert post(http, BOB, {"x": 3}).status_code == 200
        http.headers.update(shows(BOB))
        assert metric(http, 'silva_refused_total{tenant="ann"}') == 1
        assert metric(http, 'silva_refused_total{tenant="bob"}') == 0


def test_metrics_are_for_those_who_run_the_server() -> None:
    token = {"ann": ANN, "ops": sv.Access(BOB, metrics=True)}
    with client(sv.requests("x"), token=token) as http:
        assert http.get("/metrics", headers=shows(ANN)).status_code == 403
        assert http.get("/metrics", headers=shows(BOB)).status_code == 200
        assert http.get("/metrics", headers={"authorization": ""}).status_code == 401
        assert http.get("/health", headers={"authorization": ""}).json() == {}
        assert post(http, ANN[:-1], {"x": 1}).status_code == 401


@pytest.mark.parametrize("shared", [False, True])
def test_no_tenant_gets_an_answer_that_another_one_asked_for(
    upstream: Upstream, shared: bool
) -> None:
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))
    with client(pipeline, token=TOKENS, shared=shared) as http:
        for token in (ANN, BOB, ANN):
            assert post(http, token, {"q": "a"}).json() == {"q": "a", "a": "<a>"}
    assert len(upstream.calls) == (1 if shared else 2)


@pytest.mark.parametrize("shared", [False, True])
def test_tenants_that_ask_the_same_at_once_share_no_call(upstream: Upstream, shared: bool) -> None:
    upstream.script = [0.5, 0.5, 0.5, 0.5]
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))
    with client(pipeline, token=TOKENS, shared=shared) as http, ThreadPoolExecutor(8) as pool:
        found = [pool.submit(post, http, t, {"q": "a"}) for t in (ANN, BOB) * 4]
        assert {one.result().json()["a"] for one in found} == {"<a>"}
    assert len(upstream.calls) == (1 if shared else 2)


def test_a_lone_token_shares_its_answers_with_offline_runs(upstream: Upstream) -> None:
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))
    pipeline.run([{"q": "a"}])
    with client(pipeline) as http:
        assert http.post("/", json={"q": "a"}).json() == {"q": "a", "a": "<a>"}
    assert len(upstream.calls) == 1


def test_money_is_a_hard_stop_also_for_requests_at_once(upstream: Upstream) -> None:
    # As the endpoint counts, each call costs 10 tokens of 1 and 5 of 2; before it is made, one with
    # a prompt of 4 bytes may cost 4 + 2 * 16.
    model = upstream.model(price=(1e6, 2e6), concurrency=8)
    pipeline = sv.requests("q").derive(a=model.generate("{q}", max_tokens=16))
    token = {"ann": sv.Access(ANN, money=100.0), "bob": sv.Access(BOB, metrics=True)}
    with client(pipeline, token=token) as http, ThreadPoolExecutor(8) as pool:
        rows = [{"q": f"q{n:03}"} for n in range(20)]
        replies = list(pool.map(lambda row: post(http, ANN, row), rows))
        assert {reply.status_code for reply in replies} == {200, 429}
        refused = next(reply for reply in replies if reply.status_code == 429)
        assert refused.json()["error"]["kind"] == "money"
        http.headers.update(shows(BOB))
        spent = metric(http, 'silva_model_money_total{tenant="ann"}')
        assert spent <= 100
        assert spent == 20.0 * len(upstream.calls)
        assert post(http, BOB, {"q": "a"}).status_code == 200


def test_money_that_is_set_aside_comes_back() -> None:
    purse = Purse(10.0)
    with purse.reserved(6.0) as settle:
        with pytest.raises(BudgetSpent), purse.reserved(6.0):
            pass
        settle(0.0)
    with purse.reserved(10.0):
        pass  # what nobody settles may have cost all of it
    assert purse.is_empty
    with purse.reserved(0.0):
        pass  # what costs nothing goes on


def test_a_fallback_that_costs_nothing_answers_where_the_money_is_spent(
    upstream: Upstream,
) -> None:
    spare = upstream.model(revision="spare")
    model = upstream.model(price=(1e6, 0.0), fallback=spare)
    pipeline = sv.requests("q").derive(a=model.generate("{q}"))
    with client(pipeline, token=sv.Access(ANN, money=2.0)) as http:
        assert http.post("/", json={"q": "long"}).json() == {"q": "long", "a": "<long>"}
        assert metric(http, 'silva_model_money_total{tenant=""}') == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token": {}}, "at least one tenant"),
        ({"token": {"ann": ANN, "bob": ANN}}, "one token"),
        ({"token": {"": ANN}}, "has a name"),
        ({"token": "short"}, "16 characters"),
        ({"rate": 0}, "rate"),
    ],
)
def test_wrong_limits_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(sv.PlanError, match=message):
        sv.requests("x").asgi(**arguments)


@pytest.mark.parametrize("name", ["rate", "bytes", "money", "in_flight"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_limit_is_a_positive_number(name: str, value: Any) -> None:
    with pytest.raises(sv.PlanError, match=name):
        sv.Access(ANN, **{name: value})


def test_a_token_is_never_shown() -> None:
    assert ANN not in repr(sv.Access(ANN, rate=1.0))
