"""Steps that are models: what is asked, how often, and what a failure does."""

from __future__ import annotations

import gc
import json
import stat
import string
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.conftest import Upstream

import silva as sv
from silva.serve.models import opened
from silva.serve.models.answers import Answers
from silva.serve.models.endpoint.openai import Completion
from silva.serve.models.prompt import Prompt, Template
from silva.serve.models.recorded import Recorded


def test_a_question_is_asked_once_however_many_rows_have_it(upstream: Upstream) -> None:
    rows = sv.from_columns({"q": ["a", "b", "a", "c", "a"]})
    asked = rows.derive(answer=upstream.model().generate("Say {q}"))
    assert [row["answer"] for row in asked] == [f"<Say {q}>" for q in "abaca"]
    assert sorted(upstream.prompts) == ["Say a", "Say b", "Say c"]
    list(asked)
    assert len(upstream.calls) == 3


def test_answers_outlive_the_process_that_asked(upstream: Upstream, own_answers: Path) -> None:
    asked = sv.from_columns({"q": ["a"]}).derive(answer=upstream.model().generate("{q}"))
    list(asked)
    del asked
    gc.collect()  # what is in memory is gone
    assert not list(opened._opened)
    again = sv.from_columns({"q": ["a"]}).derive(answer=upstream.model().generate("{q}"))
    assert next(iter(again))["answer"] == "<a>"
    assert len(upstream.calls) == 1
    mode = stat.S_IMODE((own_answers / "answers.sqlite").stat().st_mode)
    assert mode == 0o600
    assert b"<a>" not in (own_answers / "answers.sqlite").read_bytes()[:100]


def test_another_setting_is_another_question(upstream: Upstream) -> None:
    rows, model = sv.from_columns({"q": ["a"]}), upstream.model()
    list(rows.derive(x=model.generate("{q}")))
    list(rows.derive(x=model.generate("{q}", max_tokens=7)))
    list(rows.derive(x=upstream.model(revision="2").generate("{q}")))
    assert len(upstream.calls) == 3


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_a_failed_question_is_its_row_s_failure_alone(upstream: Upstream, backend: Any) -> None:
    upstream.script = [400]
    rows = sv.from_columns({"q": list("abcd")}).derive(
        answer=upstream.model(concurrency=1).generate("{q}")
    )
    with rows.loader(backend=backend, workers=1, on_error=sv.Skip(at_most=1)) as loader:
        kept = [row["q"] for row in loader]
    assert len(kept) == 3
    assert len(upstream.calls) == 4  # nobody was asked twice


def test_retries_follow_what_may_pass(upstream: Upstream) -> None:
    upstream.script = [503, b"{broken", b'{"choices": []}', 200]
    (row,) = sv.from_columns({"q": ["a"]}).derive(x=upstream.model().generate("{q}"))
    assert row["x"] == "<a>"
    assert len(upstream.calls) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_not_tried_again(upstream: Upstream, status: int) -> None:
    upstream.script = [status]
    with pytest.raises(sv.RowError, match=f"answered {status}"):
        list(sv.from_columns({"q": ["a"]}).derive(x=upstream.model().generate("{q}")))
    assert len(upstream.calls) == 1


def test_a_dead_endpoint_gives_way_to_the_fallback(upstream: Upstream) -> None:
    spare = upstream.model(revision="spare")
    dead = upstream.model(fallback=spare, deadline=0.2)
    dead = type(dead)("http://127.0.0.1:9/v1", "gone", revision="1", fallback=spare, deadline=0.2)
    (row,) = sv.from_columns({"q": ["a"]}).derive(x=dead.generate("{q}"))
    assert row["x"] == "<a>"


def test_threads_that_ask_the_same_at_once_share_the_call(upstream: Upstream) -> None:
    upstream.script = [0.3]
    asked = sv.from_columns({"q": ["a"]}).derive(x=upstream.model().generate("{q}"))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(asked)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["x"] for row in found] == ["<a>"] * 4
    assert len(upstream.calls) == 1


def test_the_key_is_sent_and_stands_nowhere_else(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, own_answers: Path
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-open-wide")
    asked = sv.from_columns({"q": ["a"]}).derive(x=upstream.model(key="MY_KEY").generate("{q}"))
    list(asked)
    assert upstream.headers[0]["authorization"] == "Bearer sesame-open-wide"
    upstream.script = [400]
    with pytest.raises(sv.RowError) as error:
        list(sv.from_columns({"q": ["b"]}).derive(x=upstream.model(key="MY_KEY").generate("{q}")))
    seen = [asked.explain(), str(error.value), asked.fingerprint, repr(asked)]
    seen += [path.read_bytes().decode("latin-1") for path in own_answers.iterdir()]
    assert not any("sesame" in text for text in map(str, seen))


def test_a_schema_gives_columns_and_asks_again(upstream: Upstream) -> None:
    good = {"choices": [{"message": {"content": '{"name": "Ann", "age": 3}'}}]}
    bad = {"choices": [{"message": {"content": "Ann is three"}}]}
    upstream.script = [json.dumps(bad).encode(), json.dumps(good).encode()]
    step = upstream.model().generate("Who? {q}", schema={"name": str, "age": int})
    (row,) = sv.from_columns({"q": ["a"]}).derive(step, into=("name", "age"))
    assert (row["name"], row["age"]) == ("Ann", 3)
    assert "schema" in upstream.prompts[1]


def test_embeddings_are_vectors_of_float32(upstream: Upstream) -> None:
    rows = sv.from_columns({"t": ["a", "bcd"]}).derive(v=upstream.model().embed("t"))
    assert [row["v"].tolist() for row in rows] == [[1.0, 1.0], [3.0, 1.0]]
    assert [row["v"].dtype for row in rows] == ["float32", "float32"]
    assert sum(len(call["input"]) for call in upstream.calls) == 2


def test_a_request_can_be_forgotten(upstream: Upstream) -> None:
    asked = sv.requests("id", "q").derive(a=upstream.model().generate("{q}"))
    rows = [{"id": n, "q": f"secret {n % 2}"} for n in range(3)]
    asked.run(rows)
    asked.ask(**rows[2])
    assert len(upstream.calls) == 2
    assert sv.models.forget(id=2) == 1
    asked.run(rows)
    assert sorted(upstream.prompts) == ["secret 0", "secret 0", "secret 1"]
    assert sv.models.forget(id=7) == 0


def test_what_one_process_forgets_no_other_one_remembers(own_answers: Path) -> None:
    one, two = Answers(own_answers), Answers(own_answers)
    one.put({b"k": b"a secret answer"}, seconds=None)
    one.note([("request", b"k")])
    assert two.get([b"k"]) == {b"k": b"a secret answer"}
    assert one.forget("request") == 1
    assert two.get([b"k"]) == {}
    files = b"".join(path.read_bytes() for path in own_answers.iterdir())
    assert b"a secret answer" not in files
    one.close()
    two.close()


def test_offline_steps_get_large_batches(upstream: Upstream) -> None:
    rows = [{"q": str(n)} for n in range(400)]
    sv.requests("q").derive(v=upstream.model().embed("q")).run(rows)
    assert len(upstream.calls) == 7
    upstream.calls.clear()
    upstream.script = [0.05] * 400
    sv.requests("q").derive(a=upstream.model(concurrency=8).generate("{q}")).run(rows[:40])
    assert upstream.most_at_once == 8


def test_looking_at_the_first_rows_asks_few_questions(upstream: Upstream) -> None:
    rows = sv.from_columns({"q": [str(n) for n in range(400)]})
    rows.derive(a=upstream.model().generate("{q}")).head(3)
    assert len(upstream.calls) == 4


def test_recorded_answers_need_no_model(upstream: Upstream, tmp_path: Path) -> None:
    file = str(tmp_path / "answers.json")
    rows = sv.from_columns({"q": ["a"]})
    first = list(rows.derive(x=Recorded(file, model=upstream.model()).generate("{q}")))
    again = list(rows.derive(x=Recorded(file).generate("{q}")))
    assert first == again
    with pytest.raises(sv.RowError, match="holds no answer"):
        list(sv.from_columns({"q": ["z"]}).derive(x=Recorded(file).generate("{q}")))


# Templates.

NAMES = st.text(string.ascii_letters, min_size=1, max_size=4)


@given(st.lists(st.tuples(st.sampled_from("fl{}"), NAMES), max_size=8), st.text(max_size=8))
def test_only_plain_fields_are_read_and_what_is_inserted_stays(
    parts: list[tuple[str, str]], value: str
) -> None:
    made, expected = "", ""
    for kind, name in parts:
        if kind == "f":
            made, expected = made + f" {{{name}}}", expected + f" {value}"
        elif kind == "l":
            made, expected = made + f" {{{{{name}}}}}", expected + f" {{{name}}}"
        else:
            made, expected = f"{made} {kind} ", f"{expected} {kind} "
    prompt = Prompt.of(made, None)
    row = dict.fromkeys(prompt.fields(), value)
    assert prompt.render(row)[0].text == expected


def test_a_field_that_is_no_column_is_refused_when_it_is_written(upstream: Upstream) -> None:
    with pytest.raises(sv.PlanError, match="questoin"):
        sv.from_columns({"question": ["a"]}).derive(x=upstream.model().generate("{questoin}"))


def test_json_and_formats_in_a_template_are_text() -> None:
    text = 'Reply as {"a": [1, {}]}, {x!r}, {x:>3}, {0}, {a.b} and {x}'
    assert Template("", text).fields() == ("x",)


@pytest.mark.parametrize("value", [None, b"raw"])
def test_what_cannot_be_shown_fails_the_row(upstream: Upstream, value: Any) -> None:
    rows = sv.from_items([{"q": value}, {"q": "b"}]).derive(x=upstream.model().generate("{q}"))
    with rows.loader(workers=0, on_error=sv.Skip(at_most=1)) as loader:
        assert [row["x"] for row in loader] == ["<b>"]
    assert upstream.prompts == ["b"]


def test_a_prompt_without_fields_is_asked_once(upstream: Upstream) -> None:
    joke = sv.requests("x").derive(y=upstream.model().generate("Tell {{me}} { a } joke."))
    assert "Tell {{me}} { a } joke." in str(joke.explain())
    assert joke.ask(x=1)["y"] == joke.ask(x=2)["y"] == "<Tell {me} { a } joke.>"
    assert joke.run([{"x": 3}, {"x": 4}])[1]["y"] == "<Tell {me} { a } joke.>"
    assert len(upstream.calls) == 1


def test_a_long_array_is_shown_whole(upstream: Upstream) -> None:
    """Or two arrays that differ in the middle would be one question."""
    one, other = np.zeros(2000, int), np.zeros(2000, int)
    other[1000] = 7
    rows = sv.from_items([{"a": one}, {"a": other}])
    texts = [row["y"] for row in rows.derive(y=upstream.model().generate("Sum {a}"))]
    assert texts[0] != texts[1]
    assert Prompt.of("{a}", None).render({"a": np.float32(0.5)})[0].text == "0.5"


def test_a_reply_with_a_negative_number_of_tokens_pays_nothing_back() -> None:
    reply = {"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": -1}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(reply), type=Completion)
