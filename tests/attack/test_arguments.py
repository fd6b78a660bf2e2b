"""Arguments that no caller can mean, for all public faces of what answers requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.serve.models.model import Model

SILENT = "Never hangs, never shortens an epoch, never drops a row silently"
_URL = "http://localhost:1/v1"
_TOKEN = "sixteen-characters"
_DEV = [{"x": n, "gold": n + 1} for n in range(4)]
_X = sv.col("x")
_PLAIN = sv.requests("x").derive(y=_X + 1)
_OPEN = sv.requests("x").derive(y=sv.choice(_X + 1, _X * 2))
_CASCADE = sv.requests("x").derive(y=sv.cascade(_X * 0, _X % 2, accept=_X))
_TURN = sv.requests("x").derive(x=lambda x: x // 2)
_PASSAGES = sv.from_columns({"id": ["a", "b"], "text": ["fox", "hen"], "v": np.eye(2)})

_HUGE = 10**5000  # Python does not print it

HOSTILE: list[Any] = [
    math.nan, math.inf, -math.inf, -1, -0.5, 0, 0.5, 2, "5", "", b"5", None, True, [1], (1, "2"),
    {"a": 1}, object(), _HUGE, np.float64("nan"), np.array([1.0, 2.0]), lambda: 1, Model, 1j,
]  # fmt: skip
"""Values for each argument; `FACES` says which of them it takes."""


def is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and value is not _HUGE and not math.isnan(value)


def positive(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def above_zero(value: Any) -> bool:
    return is_number(value) and value > 0


def from_zero(value: Any) -> bool:
    return is_number(value) and value >= 0


def natural(value: Any) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 1


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def share(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def flag(value: Any) -> bool:
    return value is True


def never(value: Any) -> bool:
    return False


def is_pair(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def or_none(takes: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or takes(value)


def metric(y: int, gold: int) -> float:
    return float(y == gold)


def endpoint(**arguments: Any) -> sv.models.Endpoint:
    return sv.models.Endpoint(**{"url": _URL, "name": "m", **arguments})


def own(name: str, value: Any) -> object:
    """An expression with a model of the user's own, which says this of itself."""
    body = {name: value, "open": lambda self: None, "identity": "mine"} | {name: value}
    return type("Own", (Model,), body)().generate("{q}")


def serve(**arguments: Any) -> None:
    _PLAIN.asgi(**arguments).close()


Face = tuple[Callable[[Any], Any], Callable[[Any], bool]]
FACES: dict[str, Face] = {
    "Endpoint.timeout": (lambda v: endpoint(timeout=v), positive),
    "Endpoint.deadline": (lambda v: endpoint(deadline=v), positive),
    "Endpoint.concurrency": (lambda v: endpoint(concurrency=v), natural),
    "Endpoint.keep_for": (lambda v: endpoint(keep_for=v), or_none(from_zero)),
    "Endpoint.budget": (lambda v: endpoint(price=(1, 1), budget=v), or_none(positive)),
    "Endpoint.price": (lambda v: endpoint(price=v), is_pair),
    "Endpoint.price of prompts": (
        lambda v: endpoint(price=(v, 1)), lambda v: from_zero(v) and v < math.inf),
    "Endpoint.price of answers": (
        lambda v: endpoint(price=(1, v)), lambda v: from_zero(v) and v < math.inf),
    "Endpoint.fallback": (lambda v: endpoint(fallback=v), or_none(never)),
    "Endpoint.revision": (lambda v: endpoint(revision=v), or_none(text)),
    "Endpoint.key": (lambda v: endpoint(key=v), or_none(never)),
    "Endpoint.name": (lambda v: endpoint(name=v), text),
    "Endpoint.url": (lambda v: endpoint(url=v), never),
    "own.identity": (lambda v: own("identity", v), text),
    "own.concurrency": (lambda v: own("concurrency", v), natural),
    "own.lifetime": (lambda v: own("lifetime", v), or_none(from_zero)),
    "own.patience": (lambda v: own("patience", v), positive),
    "own.price": (lambda v: own("price", v), is_pair),
    "own.fallback": (lambda v: own("fallback", v), or_none(never)),
    "Embedding.path": (sv.models.Embedding, text),
    "Embedding.max_tokens": (lambda v: sv.models.Embedding(".", max_tokens=v), or_none(natural)),
    "Embedding.prompt": (lambda v: sv.models.Embedding(".", prompt=v), or_none(text)),
    "CrossEncoder.max_tokens": (
        lambda v: sv.models.CrossEncoder("e", max_tokens=v), or_none(natural)),
    "StaticEmbedding.tokenizer": (lambda v: sv.models.StaticEmbedding("w", v), text),
    "Recorded.file": (sv.models.Recorded, text),
    "Recorded.model": (lambda v: sv.models.Recorded("f", model=v), or_none(never)),
    "generate.max_tokens": (lambda v: endpoint().generate("{q}", max_tokens=v), natural),
    "generate.temperature": (
        lambda v: endpoint().generate("{q}", temperature=v), lambda v: from_zero(v) and v <= 2),
    "loop.at_most": (lambda v: sv.loop(_TURN, until=_X, at_most=v), natural),
    "loop.seconds": (lambda v: sv.loop(_TURN, until=_X, at_most=2, seconds=v), or_none(above_zero)),
    "loop.tokens": (lambda v: sv.loop(_TURN, until=_X, at_most=2, tokens=v), or_none(natural)),
    "loop.money": (lambda v: sv.loop(_TURN, until=_X, at_most=2, money=v), or_none(positive)),
    "cascade.threshold": (
        lambda v: sv.cascade(_X, _X, accept=_X, threshold=v), or_none(is_number)),
    "rerank.keep": (lambda v: sv.rerank("q", "h", by=None, keep=v), or_none(natural)),
    "requests": (sv.requests, text),
    "forget": (lambda v: sv.models.forget(), never),
    "exact_match": (lambda v: sv.exact_match(v, "gold"), lambda v: isinstance(v, str)),
    "recall_at": (lambda v: sv.recall_at(v, "hits", "gold"), natural),
    "Access.rate": (lambda v: sv.Access(_TOKEN, rate=v), or_none(positive)),
    "Access.money": (lambda v: sv.Access(_TOKEN, money=v), or_none(positive)),
    "Access.in_flight": (lambda v: sv.Access(_TOKEN, in_flight=v), or_none(natural)),
    "asgi.slo": (lambda v: serve(slo=v), or_none(positive)),
    "asgi.deadline": (lambda v: serve(deadline=v), positive),
    "asgi.refresh": (lambda v: serve(refresh=v), or_none(positive)),
    "asgi.seed": (lambda v: serve(seed=v), or_none(whole)),
    "asgi.rate": (lambda v: serve(rate=v), or_none(positive)),
    "asgi.most": (lambda v: serve(most=v), natural),
    "asgi.shared": (lambda v: serve(shared=v), flag),
    "serve.port": (lambda v: _PLAIN.serve(port=v), lambda v: whole(v) and 0 <= v <= 65535),
    "serve.host": (lambda v: _PLAIN.serve(port=0, host=v), never),
    "serve.tls": (lambda v: _PLAIN.serve(port=0, tls=v), or_none(never)),
    "serve.sample": (lambda v: _PLAIN.serve(port=0, sample=v), never),
    "ask.deadline": (lambda v: sv.requests("x").ask(x=1, deadline=v), positive),
    "run": (_PLAIN.run, never),
    "over": (_PLAIN.over, never),
    "evaluate": (lambda v: _PLAIN.evaluate(v, metric), never),
    "tune.p95": (lambda v: _OPEN.tune(_DEV, maximize=metric, p95=v), or_none(above_zero)),
    "tune.cost": (lambda v: _OPEN.tune(_DEV, maximize=metric, cost=v), or_none(above_zero)),
    "tune.executions": (
        lambda v: _OPEN.tune(_DEV, maximize=metric, executions=v), or_none(natural)),
    "tune.delta": (lambda v: _OPEN.tune(_DEV, maximize=metric, delta=v), share),
    "calibrate.epsilon": (
        lambda v: _CASCADE.calibrate(_DEV * 20, metric, epsilon=v, delta=0.1), share),
    "calibrate.delta": (
        lambda v: _CASCADE.calibrate(_DEV * 20, metric, epsilon=0.1, delta=v), share),
    "what_if.load": (lambda v: _PLAIN.what_if(on=_DEV, metric=metric, load=v), or_none(positive)),
    "what_if.seconds": (lambda v: _PLAIN.what_if(on=_DEV, metric=metric, seconds=v), from_zero),
    "what_if of a step": (
        lambda v: _PLAIN.what_if(on=_DEV, metric=metric, seconds=0, y=v), never),
    "what_if.gold of a step": (
        lambda v: _PLAIN.what_if(on=_DEV, metric=metric, seconds=0, gold={"y": v}),
        lambda v: callable(v)),
    "asgi.on_error": (lambda v: serve(on_error=v), never),
    "what_if.gold": (lambda v: _PLAIN.what_if(on=_DEV, metric=metric, gold=v), or_none(never)),
}  # fmt: skip
"""By argument: a call with a value for it, and whether it takes the value."""


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / "answers"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> sv.Index:
    folder = tmp_path_factory.mktemp("index")
    return _PASSAGES.to_index(folder / "idx", keyword="text", vector="v", workers=0)


def _refuse(call: Callable[[Any], Any], takes: Callable[[Any], bool]) -> Iterator[str]:
    """The values that are taken though they should not be, or end in another error."""
    for value in HOSTILE:
        if takes(value):
            continue
        try:
            call(value)
        except sv.PlanError as error:
            if len(str(error)) > 1000:
                yield f"{value!r:.40}: a message of {len(str(error))} characters"
        except Exception as error:  # noqa: BLE001  what a caller would see
            yield f"{value!r:.40}: {type(error).__name__}: {error}"
        else:
            yield f"{value!r:.40} is taken"


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", FACES)
def test_what_no_caller_can_mean_is_refused_when_it_is_written(name: str) -> None:
    assert not list(_refuse(*FACES[name]))


@pytest.mark.attacks(SILENT)
def test_an_index_refuses_what_no_caller_can_mean(index: sv.Index, tmp_path: Path) -> None:
    def to(**arguments: Any) -> None:
        _PASSAGES.to_index(tmp_path / "other", **{"keyword": "text", "vector": "v", **arguments})

    faces: dict[str, Face] = {
        "k": (lambda v: index.search("q", by="keyword", k=v), natural),
        "by": (lambda v: index.search("q", by=v, vector="v"), or_none(never)),
        "where": (lambda v: index.search("q", by="keyword", where=v), or_none(never)),
        "embed": (lambda v: index.search("q", vector="v", embed=v), or_none(never)),
        "question": (lambda v: index.search(v, by="keyword"), lambda v: isinstance(v, str)),
        "Index(embed=…)": (lambda v: sv.Index(index.path, embed=v), or_none(never)),
        "Index(version=…)": (lambda v: sv.Index(index.path, version=v), or_none(natural)),
        "gc": (lambda v: index.gc(versions=v), natural),
        "to_index(keyword=…)": (lambda v: to(keyword=v), or_none(never)),
        "to_index(vector=…)": (lambda v: to(vector=v), or_none(never)),
        "to_index(id=…)": (lambda v: to(id=v), or_none(never)),
        "to_index(text=…)": (lambda v: to(text=v), or_none(never)),
        "to_index(embed=…)": (lambda v: to(embed=v), or_none(never)),
        "to_index(recall=…)": (lambda v: to(recall=v), or_none(share)),
    }
    wrong = {name: found for name, face in faces.items() if (found := list(_refuse(*face)))}
    assert not wrong


_MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a deadline as text": (
        lambda: sv.requests("x").ask(x=1, deadline="5"),
        r"ask\(deadline=…\) takes numbers, not '5'"),
    "an option that there is not": (
        lambda: _PLAIN.serve(nope=1), r"serve has no argument 'nope'; it takes .*deadline.*port"),
    "an option of serve for asgi": (
        lambda: _PLAIN.asgi(port=1), r"asgi has no argument 'port'; it takes .*deadline"),
    "an objective as text": (
        lambda: _PLAIN.serve(slo="fast"), r"serve\(slo=…\) takes numbers, not 'fast'"),
    "a port as text": (
        lambda: _PLAIN.serve(port="80"), r"serve\(port=…\) takes a whole number .* not '80'"),
    "a misspelt column": (
        lambda: sv.requests("x").ask(X=1), r"has the columns x; this one has no 'x', but 'X'"),
    "columns as keywords": (lambda: sv.requests(x=1), r"requests has no argument 'x'"),
    "a misspelt argument of a model": (
        lambda: endpoint(time_out=1), r"Endpoint has no argument 'time_out'; it takes .*timeout"),
    "a misspelt argument of a step": (
        lambda: endpoint().generate("{q}", max_token=1),
        r"generate has no argument 'max_token'; it takes .*max_tokens"),
    "a bound that is missing": (
        lambda: sv.loop(_TURN, until=_X), r"loop: missing .*'at_most'; it takes .*at_most"),
    "a request by position": (
        lambda: sv.requests("x").ask(1), r"ask: too many positional arguments"),
    "an address without a port": (
        lambda: endpoint(url="http://host:99999/v1"), r"an address such as http://host:8080/v1"),
}  # fmt: skip


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", _MISTAKES)
def test_a_mistake_is_told_with_its_place_and_what_to_write(name: str) -> None:
    call, says = _MISTAKES[name]
    with pytest.raises(sv.PlanError, match=says):
        call()


@pytest.mark.attacks(SILENT)
def test_a_model_that_is_its_own_fallback_is_refused() -> None:
    class Own(Model):
        identity = "mine"

        def open(self) -> Any: ...

    made = Own()
    made.__dict__["fallback"] = made
    with pytest.raises(sv.PlanError, match="fallback"):
        made.generate("{q}")
