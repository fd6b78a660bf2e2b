"""Tools: a model calls functions of a list, with arguments that fit their annotations."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest

import silva as sv
from silva.plan.fingerprint import fingerprint

SOLD = {"tea": 3, "jam": 5}


def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


def sold(item: str, unit: Literal["box", "piece"] = "box") -> str:
    return f"{SOLD[item]} {unit}"


def few(count: Annotated[int, msgspec.Meta(le=9)], *, names: list[str] | None = None) -> Any:
    return {"count": count, "names": names}


def calls(**arguments: Any) -> sv.Pipeline:
    step = sv.tools(add, sold, few).call("said", **arguments)
    return sv.requests("said").derive(result=step)


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def result(said: Any, **arguments: Any) -> Any:
    return calls(**arguments).ask(said=said)["result"]


def test_a_tool_is_called_with_typed_arguments_and_gives_text() -> None:
    assert result(call("add", a=1)) == "3"
    assert result(call("sold", item="tea", unit="piece")) == "3 piece"
    assert result(call("few", count=9, names=["a"])) == '{"count":9,"names":["a"]}'


def test_words_and_fences_around_a_call_do_not_matter() -> None:
    assert result(f"I add:\n```json\n{call('add', a=1, b=1)}\n``` {{1, 2}}") == "2"


@pytest.mark.parametrize("said", ["It is 3.", "", "The set {1, 2}.", "{question}"])
def test_a_text_without_a_json_object_is_no_call(said: str) -> None:
    assert result(said) is None


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (call("rm", path="/"), "there is no tool 'rm'; there are add, sold, few"),
        (call("__import__"), "there is no tool"),
        (call("add", a="1"), "wrong arguments for add: Expected `int`, got `str`"),
        (call("add", a=1, c=2), "unknown field `c`"),
        (call("add"), "missing required field `a`"),
        (call("few", count=10), "Expected `int` <= 9"),
        (call("sold", item="tea", unit="ton"), "wrong arguments for sold: Invalid enum value"),
        ('{"name": "add", "arguments": [1]}', "this is no tool call"),
        ('{"tool": "add"}', "this is no tool call"),
        ('{"name": "add", "arguments": {"a": 1', "broken or incomplete"),
        ('{"' + "[" * 9000, "broken or incomplete"),
        (call("add", a=1) + call("add", a=2), "one at a time"),
        (5, "read from text, not int"),
    ],
)
def test_a_wrong_call_fails_its_row_or_is_told_to_the_model(said: Any, says: str) -> None:
    with pytest.raises(sv.RowError) as caught:
        result(said)
    assert says in str(caught.value)
    told = result(said, feed_back=True)
    assert told.startswith("error: ")
    assert says in told


def test_what_a_tool_raises_fails_its_row_and_names_its_file() -> None:
    for feed_back in (False, True):
        with pytest.raises(sv.RowError, match=r"test_tools\.py.*KeyError: 'oil'"):
            result(call("sold", item="oil"), feed_back=feed_back)


def test_numpy_results_are_json_and_other_objects_fail() -> None:
    def mean(xs: list[float]) -> Any:
        return np.array(xs).mean(keepdims=True)

    def thing() -> object:
        return object()

    made = sv.requests("said").derive(result=sv.tools(mean, thing).call("said"))
    assert made.ask(said=call("mean", xs=[1, 2]))["result"] == "[1.5]"
    with pytest.raises(sv.RowError, match="no JSON form"):
        made.ask(said=call("thing"))


def test_the_prompt_describes_every_tool_and_is_safe_in_a_template(tmp_path) -> None:
    def odd(x: int) -> int:
        """Takes {question} apart."""
        return x

    prompt = sv.tools(add, odd).prompt
    assert '"name": "add", "description": "Adds two numbers."' in prompt
    assert '"required": ["a"]' in prompt
    template = f"{prompt}\n{{question}}"
    asked = sv.models.Recorded(str(tmp_path / "none.json")).generate(template)
    with pytest.raises(sv.RowError, match="holds no answer"):
        sv.requests("question").derive(answer=asked).ask(question="q")


def _takes_anything(*args: int) -> int:
    return len(args)


def _untyped(a) -> int:
    return a


def _no_json(a: threading.Lock) -> int:  # noqa: F821  resolved where it is used
    return 1


async def _async(a: int) -> int:
    return a


class _Callable:
    def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ((), "tools takes the functions"),
        ((add, add), "two functions called 'add'"),
        ((_takes_anything,), "by name"),
        ((_untyped,), "annotate 'a'"),
        ((_async,), "async def"),
        ((_Callable(),), "written with def"),
        ((lambda a: a,), "written with def"),
        ((print,), "written with def"),
    ],
)
def test_functions_that_models_cannot_call_are_refused(functions: Any, says: str) -> None:
    with pytest.raises(sv.PlanError, match=says):
        sv.tools(*functions)


def test_annotations_must_be_known_and_have_json() -> None:
    with pytest.raises(sv.PlanError, match="_no_json"):
        sv.tools(_no_json)

    def odd(a: complex) -> int:
        return 1

    with pytest.raises(sv.PlanError, match="no JSON"):
        sv.tools(odd)


def test_the_fingerprint_covers_the_code_of_the_tools() -> None:
    def one(a: int) -> int:
        return a

    def other(a: int) -> int:
        return a + 1

    other.__name__ = "one"
    plans = [
        sv.requests("said").derive(result=sv.tools(f).call("said")).plan for f in (one, one, other)
    ]
    first, again, changed = map(fingerprint, plans)
    assert first == again != changed


def test_an_agent_answers_alike_offline_and_online() -> None:
    script = {"how many tea?": call("sold", item="tea"), "and jam?": call("sold", item="nope")}

    def said(question: str, log: str) -> str:
        return script[question] if not log else f"done: {log.strip()}"

    turn = (
        sv.requests("question", "log")
        .derive(said=said)
        .derive(result=sv.tools(sold).call("said"))
        .derive(log=lambda log, result: f"{log}{result}\n")
    )
    agent = (
        sv.requests("question")
        .derive(log=lambda: "")
        .derive(turns=sv.loop(turn, until=sv.col("result").is_null(), at_most=4))
        .derive(answer=lambda turns: turns[-1]["said"])
        .select("question", "answer")
    )
    assert agent.ask(question="how many tea?")["answer"] == "done: 3 box"
    rows = [{"question": question} for question in script]
    offline = agent.run(rows, on_error=sv.Skip(), backend="processes", workers=1)
    assert offline == [{"question": "how many tea?", "answer": "done: 3 box"}]
    with pytest.raises(sv.RowError, match=r"turn 1: .*KeyError: 'nope'"):
        agent.ask(question="and jam?")
