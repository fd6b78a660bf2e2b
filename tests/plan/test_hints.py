"""Names from other libraries are refused with what to write instead."""

from __future__ import annotations

import copy
import functools
import json
import pickle

import numpy as np
import pandas as pd
import pytest

import silva as sv
from silva.plan.arguments import explains
from silva.plan.hints import ARGUMENTS, EXPRESSIONS, FUNCTIONS, METHODS

ROWS = sv.from_columns({"x": range(5), "y": [[1]] * 5})


def slow(x):
    return x


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_elsewhere_is_no_attribute_and_its_error_says_what_to_write(name):
    assert not hasattr(ROWS, name)
    with pytest.raises(AttributeError) as error:
        getattr(ROWS, name)
    assert str(error.value) == f"a pipeline has no {name!r}: write {METHODS[name]}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_elsewhere_is_no_attribute_and_its_error_says_what_to_write(name):
    with pytest.raises(AttributeError) as error:
        getattr(sv, name)
    assert str(error.value) == f"module 'silva' has no attribute {name!r}: write {FUNCTIONS[name]}"


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_attribute_of_other_expressions_says_what_to_write(name):
    assert not hasattr(sv.col("x"), name)
    with pytest.raises(AttributeError, match="an expression has no"):
        getattr(sv.col("x"), name)


VERBS = {
    "loader": ROWS.loader,
    "batch": ROWS.batch,
    "shuffle": ROWS.shuffle,
    "derive": ROWS.derive,
    "read_csv": sv.read_csv,
    "read_json": sv.read_json,
    "read_parquet": sv.read_parquet,
    "tokenize": functools.partial(sv.text("x").tokenize, len),
    "search": functools.partial(sv.Index.search, None, "question"),
    "serve": sv.requests("x").serve,
    "tune": functools.partial(sv.requests("x").tune, []),
    "loop": sv.loop,
    "Endpoint": sv.models.Endpoint,
}


@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb, names in ARGUMENTS.items() for name in names]
)
def test_an_argument_of_elsewhere_says_what_to_write(verb, name):
    with pytest.raises(sv.PlanError) as error:
        VERBS[verb](**{name: 1})
    assert str(error.value) == f"{verb} has no argument {name!r}: write {ARGUMENTS[verb][name]}"


def test_an_argument_that_nobody_knows_shows_those_there_are():
    with pytest.raises(sv.PlanError, match="no argument 'many'; it takes size, per_rank, tokens"):
        ROWS.batch(4, many=3)
    with pytest.raises(sv.PlanError, match="no argument 'many'; it takes backend, cache"):
        ROWS.loader(many=3)
    with pytest.raises(sv.PlanError, match=r"explode has no argument 'index'; it takes column$"):
        ROWS.explode("y", index="i")
    with pytest.raises(sv.PlanError, match="rand_augment has no argument 'n'; it takes num_ops, "):
        sv.image("x").rand_augment(n=2)
    with pytest.raises(sv.PlanError, match="tokenize has no argument 'stride'; it takes tokeni"):
        sv.text("x").tokenize(len, stride=2)
    with pytest.raises(
        sv.PlanError, match=r"^take: too many positional arguments; it takes count$"
    ):
        ROWS.take(1, 2)


def test_requests_are_asked_by_the_names_of_their_columns():
    answers = sv.requests("x")
    with pytest.raises(sv.PlanError, match=r"^ask: too many .*: write ask\(question=…\)"):
        answers.ask(5)
    with pytest.raises(sv.PlanError, match=r"^ask: too many .*: write ask\(question=…\)"):
        answers.ask({"x": 5}, deadline=1.0)


def test_arguments_of_a_served_pipeline_that_nobody_knows_show_those_there_are():
    with pytest.raises(
        sv.PlanError, match=r"^serve has no argument 'many'; it takes behind_proxy, cluster"
    ):
        sv.requests("x").serve(many=1)
    with pytest.raises(
        sv.PlanError, match=r"^asgi has no argument 'port'; it takes deadline, kept_bytes"
    ):
        sv.requests("x").asgi(port=1)
    with pytest.raises(sv.PlanError, match=r"^Endpoint: missing a required argument: 'name'; it"):
        sv.models.Endpoint("http://127.0.0.1/v1")


def test_a_type_error_inside_a_verb_stays_as_it_is():
    @explains
    def verb(size):
        return size + "mine"

    with pytest.raises(TypeError, match="unsupported operand"):
        verb(3)


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (ROWS, "shufle", "shuffle"),
        (ROWS, "derrive", "derive"),
        (sv.image("x"), "center_corp", "center_crop"),
        (sv.image("x"), "RandAugment", "rand_augment"),
        (sv.image("x"), "RandomResizedCrop", "random_resized_crop"),
        (sv.audio("x"), "spectogram", "spectrogram"),
    ],
)
def test_a_name_that_is_almost_right_shows_the_right_one(owner, name, meant):
    with pytest.raises(AttributeError, match=f"has no '{name}'; did you mean '{meant}'"):
        getattr(owner, name)
    with pytest.raises(AttributeError, match=r"has no 'qqq'$"):
        owner.qqq  # noqa: B018


def test_a_pipeline_is_no_sequence_and_stays_true_and_can_be_copied():
    with pytest.raises(TypeError, match=r"count\(\)"):
        len(ROWS)
    with pytest.raises(TypeError, match=r"head\(n\)"):
        ROWS[0]
    with pytest.raises(TypeError, match=r"select\('x'\)"):
        ROWS["x"]
    assert ROWS
    assert len(list(ROWS)) == 5
    assert pickle.loads(pickle.dumps(ROWS)).columns == copy.deepcopy(ROWS).columns == ("x", "y")  # noqa: S301


WRONG = {
    "a whole row": (lambda: ROWS.filter(lambda row: row["x"]), "map_rows"),
    "a data frame": (lambda: sv.from_columns(pd.DataFrame({"x": [1]})), "from_arrow"),
    "a generator": (lambda: sv.from_columns({"x": (i for i in range(3))}), r"list\(…\)"),
    "rename": (lambda: ROWS.rename(z="x"), r"rename\(\{'x': 'z'\}\)"),
    "explode": (lambda: ROWS.explode(lambda x: x), r"explode\('items'\)"),
    "split": (lambda: ROWS.split(0.8, 0.2), r"split\(train=0.9, val=0.1\)"),
    "concat": (lambda: sv.concat(ROWS, ROWS), r"sv\.concat\(\[a, b\]\)"),
    "service": (lambda: ROWS.loader(service="http://localhost:1", workers=2), r"sv\.Service\("),
    "what_if": (lambda: ROWS.what_if("decode"), r"what_if\(decode=0.5\)"),
    "why": (lambda: ROWS.why(3), "not 3"),
    "table": (lambda: sv.Table.create("nowhere", {"x": [1]}), r"pa\.table"),
    "service of a pipeline": (lambda: sv.Service(ROWS), r'Service\(\{"train": pipeline\}\)'),
    "a kind of groups": (lambda: ROWS.shuffle(kind="groups"), r"write shuffle\(by='column'\)"),
    "a kind of shuffle": (lambda: ROWS.shuffle(kind="all"), r"shuffle\(kind=…\) is 'global', 'two"),
    "the path of a table": (lambda: sv.Table("path"), r"write sv\.Table\.open\('path'\)"),
    "a size": (lambda: sv.image("x").resize(), "resize: missing a required argument: 'height'"),
    "seconds": (
        lambda: sv.from_columns({"s": [0.5]}).bucket("s", {3: 2}).head(1),
        "math.ceil",
    ),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_what_is_given_wrong_shows_the_cure(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sv.SilvaError, match=said):
        call()


def test_a_column_may_still_be_called_as_an_argument_of_elsewhere():
    assert ROWS.derive(batched=slow, reads="x").head(1)[0]["batched"] == 0


def test_why_knows_the_verbs_that_were_written():
    rows = ROWS.shuffle(seed=3).batch(2)
    assert str(rows.why("batch")).startswith("`batch` is the step `batch 2`; explain()")
    assert "`shuffle seed=3" in str(rows.why("shuffle"))
    with pytest.raises(sv.PlanError, match="nothing here is called 'bach'; did you mean 'batch'"):
        rows.why("bach")


def test_why_takes_a_function_or_its_name():
    pipeline = ROWS.derive(z=slow)
    assert str(pipeline.why(slow)) == str(pipeline.why("slow"))
    assert "derive z = slow(x)" in str(pipeline.why("slow"))


def test_keys_of_numbers_and_text_are_refused_when_a_join_with_a_dict_is_written():
    sides = [{"x": np.array(["1"]), "p": [1]}, {"x": ["1", None], "p": [1, 2]}]
    for other in sides:
        with pytest.raises(sv.PlanError, match="no two values can be equal"):
            ROWS.join(other, on="x")
    assert ROWS.join({"x": [1], "p": [7]}, on="x").head(2)[1]["p"] == 7


def test_lines_that_are_no_json_show_a_cure_that_works(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n{"a": 2,}\n{"a": 3}\n')
    with pytest.raises(sv.SourceError, match=r'derive\(row=json\.loads, reads="text"\)'):
        sv.read_json(file).head(3)
    rows = sv.read_lines(file).derive(row=json.loads, reads="text")
    rows = rows.map_rows(lambda row: row["row"], into=["a"])
    assert [b["a"].tolist() for b in rows.batch(4).loader(on_error=sv.Skip())] == [[1, 3]]
    for text in ('[{"a": 1},\n{"a": 2}]\n', '{\n  "a": 1\n}\n'):
        file.write_text(text)
        with pytest.raises(sv.SourceError, match=r"one object per line.*json\.load\(file\)"):
            sv.read_json(file).head(3)


def test_ragged_csv_and_braces_show_a_cure(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(sv.SourceError, match="read_lines"):
        sv.read_csv(tmp_path / "a.csv").head(3)
    with pytest.raises(sv.SourceError, match="braces are not expanded"):
        sv.read_tar(str(tmp_path / "s-{000..002}.tar")).head(1)
