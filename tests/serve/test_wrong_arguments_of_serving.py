"""Arguments of models, indices, metrics and cascades that cannot work are refused when written."""

from __future__ import annotations

import json

import pytest

import silva as sv

ENDPOINT = "http://127.0.0.1:9/v1"
PASSAGES = sv.from_columns({"id": ["a"], "text": ["A fox."]})


@pytest.mark.parametrize("price", [0.5, (1.0,), (1.0, -1.0), "12"])
def test_a_price_is_two_amounts_of_money(price):
    with pytest.raises(sv.PlanError, match=r"Endpoint\(price="):
        sv.models.Endpoint(ENDPOINT, "m", price=price)


def test_a_metric_takes_columns_and_recall_a_number_first():
    with pytest.raises(sv.PlanError, match=r"recall_at\(k, hits, gold\) takes a whole number"):
        sv.recall_at("hits", "gold", 1)
    with pytest.raises(sv.PlanError, match=r"write recall_at\(1, 'hits', 'gold'\)"):
        sv.recall_at("hits", "gold", k=1)
    with pytest.raises(sv.PlanError, match="takes the name of a column"):
        sv.exact_match("answer", 3)
    with pytest.raises(sv.PlanError, match="takes the name of a column"):
        sv.f1(["answer"], "gold")


def test_an_index_is_made_of_columns_and_not_of_models(tmp_path):
    model = sv.models.Recorded(str(tmp_path / "answers.json"))
    for vector in (model, model.embed("text")):
        with pytest.raises(sv.PlanError, match=r"to_index\(vector=…\) takes the name of a column"):
            PASSAGES.to_index(tmp_path / "idx", vector=vector)


def test_an_embedding_model_is_a_folder_that_is_there():
    with pytest.raises(sv.SilvaError, match=r"'all-MiniLM-L6-v2' is no folder.*download"):
        sv.models.Embedding("all-MiniLM-L6-v2")


def test_a_cascade_of_a_function_says_how_to_make_it_an_expression():
    x = sv.col("x")
    with pytest.raises(sv.PlanError, match=r"derive\(accept=…\) and then sv.col\('accept'\)"):
        sv.cascade(x, x, accept=lambda x: 1.0)


def test_a_server_shows_its_address_and_not_its_token():
    with sv.requests("x").serve(port=0) as server:
        assert repr(server) == f"server at {server.address}"


def test_values_that_fill_up_rows_are_no_flags():
    rows = sv.from_items([{"t": [True, False]}, {"t": [True]}])
    with pytest.raises(sv.PlanError, match=r"such as 0, not True.*pad=\{'x': True\}"):
        rows.batch(2, pad=True)
    assert rows.batch(2, pad={"t": True}).head(1)[0]["t"].tolist() == [[True, False], [True, True]]


def test_an_error_of_silvas_shows_once_and_without_frames_of_python():
    model = sv.models.Endpoint(ENDPOINT, "m", price=(1, 1), budget=1e-9)
    with pytest.raises(sv.RowError) as error:
        sv.requests("q").derive(a=model.generate("{q}")).ask(q="?")
    assert str(error.value).count("does not suffice for the call") == 1
    assert "Traceback" not in str(error.value)


def test_an_error_of_a_function_shows_where_it_was_raised():
    with pytest.raises(
        sv.RowError, match=r"(?s)Traceback.*in raw_decode.*JSONDecodeError"
    ) as error:
        sv.requests("s").derive(a=lambda s: json.loads(s)).ask(s="{")
    assert "test_wrong_arguments_of_serving.py" in str(error.value)


def test_a_prompt_that_was_not_recorded_shows_where_it_differs_from_one_that_was(tmp_path):
    asked = "Answer in one word, from what you know. Where is "
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"generate": {f"{asked}Rome?": {"max_tokens=9": "Italy"}}}))
    model = sv.models.Recorded(str(file))
    answers = sv.requests("city").derive(a=model.generate(f"{asked}{{city}}?"))
    with pytest.raises(sv.RowError, match=r"differs from character 49 on: 'Rome\?', not 'Oslo\?'"):
        answers.ask(city="Oslo")
    with pytest.raises(sv.RowError, match=r"was recorded with other settings: max_tokens=9"):
        answers.ask(city="Rome")
