"""Indices: what a search finds, and that an index is whole at any moment."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.columns import Values
from silva.order.draws import Draw
from silva.plan.operator import RowErrors
from silva.serve.index.operators import search
from silva.serve.index.vectors import cosines, unit
from silva.serve.index.version import IndexFolder
from silva.serve.models.model import Answer, Model

TEXTS = ["The red fox runs.", "A brown bear sleeps.", "The red hen lays an egg.", "Rain."]
YEARS = [1999, 2001, 2003, None]


@dataclass(frozen=True)
class Letters(Model):
    """Embeds a text as the counts of its letters: a small real model."""

    name: str = "letters"

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> Letters:  # type: ignore[override]  it is stateless
        return self

    def embed(self, texts: Any) -> Any:
        if isinstance(texts, str):
            return super().embed(texts)
        return [
            np.array([t.lower().count(chr(97 + i)) for i in range(26)], np.float32) for t in texts
        ]

    def generate(self, *questions: Any, **_: Any) -> Any:
        return [Answer("") for _ in questions]

    def score(self, *pairs: Any, **_: Any) -> Any:
        return [-float(len(set(a.split()) ^ set(b.split()))) for a, b in pairs[0]]

    def close(self) -> None: ...


def passages() -> sv.Pipeline:
    rows = sv.from_columns({"id": ["d", "c", "b", "a"], "text": TEXTS, "year": YEARS})
    return rows.derive(vector=Letters().embed("text"))


def found(index: sv.Index, question: str, **arguments: Any) -> list[dict[str, Any]]:
    rows = sv.from_columns({"question": [question]})
    hits = rows.derive(hits=index.search("question", **arguments))
    made: list[dict[str, Any]] = next(iter(hits))["hits"]
    return made


def ids(*arguments: Any, **more: Any) -> list[Any]:
    return [hit["id"] for hit in found(*arguments, **more)]


@pytest.fixture
def index(tmp_path: Path) -> sv.Index:
    return passages().to_index(tmp_path / "idx", keyword="text", vector="vector")


def test_hits_have_id_score_and_text_and_the_best_comes_first(index: sv.Index) -> None:
    hits = found(index, "the red fox", by="keyword")
    assert [hit["id"] for hit in hits] == ["d", "b"]
    assert hits[0]["text"] == TEXTS[0]
    assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)


def test_a_passage_without_any_of_the_words_is_no_hit(index: sv.Index) -> None:
    assert ids(index, "bear", by="keyword") == ["c"]
    assert ids(index, "", by="keyword") == []
    assert len(ids(index, "bear", by="vector")) == 4


def test_of_equal_scores_the_lower_id_comes_first(tmp_path: Path) -> None:
    numbers = [30, 4, 12, 7]
    rows = sv.from_columns({"id": numbers, "text": ["same words"] * 4, "v": np.ones((4, 3))})
    index = rows.to_index(tmp_path / "i", keyword="text", vector="v")
    asked = sv.from_columns({"q": ["words"], "v": np.ones((1, 3))})
    for by in ("keyword", "vector", "hybrid"):
        row = next(iter(asked.derive(hits=index.search("q", by=by, vector="v", k=3))))
        assert [hit["id"] for hit in row["hits"]] == [4, 7, 12]
        if by == "hybrid":
            assert {hit["score"] for hit in row["hits"]} == {0.0}  # no variance


def test_hybrid_is_the_sum_of_the_z_scores_over_all_passages(index: sv.Index) -> None:
    question = "red bear"
    contents = index.contents()
    words = contents.keywords.scores(question)
    vector = unit(Letters().embed([question])[0])
    cosine = contents.vectors.astype(np.float64) @ vector.astype(np.float64)
    z = sum((s - s.mean()) / s.std() for s in (words, cosine))
    for hit in found(index, question, by="hybrid", k=4):
        assert hit["score"] == pytest.approx(z["abcd".index(hit["id"])], abs=2e-5)


def test_filters_see_the_other_columns_and_null_is_no(index: sv.Index) -> None:
    later = sv.col("year") > 2000
    assert ids(index, "red fox", by="keyword", where=later) == ["b"]
    assert set(ids(index, "red fox", by="vector", where=later)) == {"b", "c"}
    assert ids(index, "red fox", where=sv.col("year") > 3000) == []
    whole = {hit["id"]: hit["score"] for hit in found(index, "red fox")}
    for hit in found(index, "red fox", where=later):
        assert hit["score"] == whole[hit["id"]]  # a filter changes no score


def test_a_bad_filter_is_refused_when_it_is_written(index: sv.Index) -> None:
    with pytest.raises(sv.PlanError, match="no column to filter by"):
        index.search("question", where=sv.col("month") > 2)
    with pytest.raises(sv.PlanError, match="condition"):
        index.search("question", where=lambda year: year > 2000)  # type: ignore[arg-type]


def test_another_model_than_that_of_the_passages_is_refused(index: sv.Index) -> None:
    with pytest.raises(sv.PlanError, match="another model"):
        index.search("question", by="vector", embed=Letters("other"))
    with pytest.raises(sv.PlanError, match="another model"):
        sv.Index(index.path, embed=Letters("other"))
    with pytest.raises(sv.PlanError, match="needs the model"):
        sv.Index(index.path).search("question", by="vector")


def test_a_row_without_text_is_its_own_failure_alone(index: sv.Index) -> None:
    rows = sv.from_items([{"q": "fox"}, {"q": None}, {"q": "hen"}])
    hits = rows.derive(hits=index.search("q", by="keyword"))
    with hits.loader(workers=0, on_error=sv.Skip(at_most=1)) as loader:
        assert [row["hits"][0]["id"] for row in loader] == ["d", "b"]


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_hits_depend_neither_on_the_batch_nor_on_who_runs_it(index: sv.Index, backend: Any) -> None:
    questions = [f"{a} {b}" for a in ("red", "bear", "egg") for b in ("fox", "rain", "hen")]
    alone = [found(index, q, k=3) for q in questions]
    rows = sv.from_columns({"q": questions}).derive(hits=index.search("q", k=3))
    with rows.loader(backend=backend, workers=2 if backend != "inline" else 0) as loader:
        assert [row["hits"] for row in loader] == alone


def test_a_cosine_depends_on_its_two_vectors_alone() -> None:
    rng = np.random.default_rng(0)
    vectors = unit(rng.normal(size=(257, 384)))
    query = vectors[3]
    whole = cosines(vectors, query)
    for start in range(0, 250, 7):
        assert (cosines(vectors[start : start + 5].copy(), query) == whole[start : start + 5]).all()


def searched(index: sv.Index, queries: Any, k: int = 4) -> list[list[tuple[Any, float]]]:
    """The ids and scores of the hits of each query."""
    rows = sv.from_columns({"q": queries}).derive(hits=index.search(by="vector", vector="q", k=k))
    return [[(hit["id"], hit["score"]) for hit in row["hits"]] for row in rows]


_NORMS = [1e-300, 1e-200, 1e-45, 1e-38, 1e-20, 1.0, 1e20, 1e38, 1e200, 1e300]


@pytest.mark.parametrize("recall", [None, 0.5])
def test_very_large_and_very_small_vectors_are_ranked_as_any_others(
    tmp_path: Path, recall: float | None
) -> None:
    rng = np.random.default_rng(0)
    made, queries = rng.normal(size=(200, 8)), rng.normal(size=(10, 8))
    norms = np.resize(_NORMS, 200)[:, None]
    one = sv.from_columns({"id": np.arange(200), "v": made})
    other = sv.from_columns({"id": np.arange(200), "v": made * norms})
    plain = one.to_index(tmp_path / "plain", vector="v", recall=recall, workers=0)
    index = other.to_index(tmp_path / "scaled", vector="v", recall=recall, workers=0)
    scaled = queries * np.array(_NORMS)[:, None]
    assert searched(index, scaled) == searched(plain, scaled) == searched(plain, queries)


def test_common_vectors_have_the_bits_that_they_always_had() -> None:
    rng = np.random.default_rng(0)
    for norm in (1e-6, 1.0, 1e6):
        plain = (norm * rng.normal(size=(100, 384))).astype(np.float32)
        before = plain / np.sqrt(np.vecdot(plain, plain))[:, None]
        assert unit(plain).tobytes() == before.tobytes()
        assert unit(plain.astype(np.float64)).tobytes() == before.tobytes()


@pytest.mark.parametrize("recall", [None, 0.5])
def test_a_vector_of_zeros_has_the_cosine_0_with_every_other(
    tmp_path: Path, recall: float | None
) -> None:
    made = np.random.default_rng(0).normal(size=(200, 8))
    made[7] = 0
    rows = sv.from_columns({"id": np.arange(200), "v": made})
    index = rows.to_index(tmp_path / "idx", vector="v", recall=recall, workers=0)
    assert searched(index, [np.zeros(8)]) == [[(n, 0.0) for n in range(4)]]
    assert (7, 0.0) in searched(index, made[:1], k=200)[0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_query_that_is_not_finite_fails_its_row_alone(tmp_path: Path, bad: float) -> None:
    rows = sv.from_columns({"id": [1, 2], "v": np.eye(2)})
    index = rows.to_index(tmp_path / "idx", vector="v", workers=0)
    asked = sv.from_columns({"q": np.array([[1.0, 0.0], [bad, 1.0], [0.0, 1.0]])})
    made = asked.derive(hits=index.search(by="vector", vector="q", k=1))
    with made.loader(workers=0, on_error=sv.Skip()) as loader:
        assert [row["hits"][0]["id"] for row in loader] == [1, 2]
        assert "NaN or infinity" in loader.failures[0].error


@pytest.mark.parametrize("query", ["text", ["1", "2"], None, [True, False], [[1.0], [1.0, 2.0]]])
def test_a_query_that_is_no_vector_fails_its_row(index: sv.Index, query: Any) -> None:
    asked = sv.from_items([{"q": query}])
    made = asked.derive(hits=index.search(by="vector", vector="q"))
    with pytest.raises(sv.RowError, match="searched by a vector"):
        made.head()


def test_many_threads_search_one_open_index(index: sv.Index) -> None:
    expected = found(index, "red fox", k=3)
    again = sv.Index(index.path, embed=Letters())
    assert again.contents() is index.contents()
    wrong: list[Any] = []

    def ask() -> None:
        for _ in range(5):
            hits = found(again, "red fox", k=3)
            if hits != expected:
                wrong.append(hits)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_passages_are_looked_up_by_their_ids(index: sv.Index) -> None:
    assert index.lookup(["b", "a"]) == [
        {"id": "b", "score": 1.0, "text": TEXTS[2]},
        {"id": "a", "score": 1.0, "text": TEXTS[3]},
    ]
    with pytest.raises(sv.SilvaError, match="no passage 'x'"):
        index.lookup(["x"])


def test_an_id_that_is_no_text_is_not_in_an_index(index: sv.Index) -> None:
    for call in (index.lookup, index.delete):
        for wrong in ("\ud800", 5, None, [1], 10**400):
            with pytest.raises(sv.SilvaError):
                call([wrong])


def test_a_choice_may_stand_where_a_parameter_stands(index: sv.Index) -> None:
    by = sv.choice("keyword", "vector")
    assert found(index, "bear", by=by) == found(index, "bear", by="keyword")


# Versions.


def parts(index: sv.Index) -> Any:
    version = IndexFolder(index.path).version(index.version)
    return version.parts


def test_added_and_deleted_rows_leave_the_index_of_what_is_left(tmp_path: Path) -> None:
    rows = list(passages())
    whole = sv.from_items(rows).to_index(tmp_path / "a", keyword="text", vector="vector")
    grown = sv.from_items(rows[:2]).to_index(tmp_path / "b", keyword="text", vector="vector")
    old = {**rows[0], "text": "To be replaced."}
    grown = grown.add(sv.from_items([old, *rows[2:]])).add(sv.from_items(rows[:1]))
    assert parts(grown) == parts(whole)
    extra = {**rows[0], "id": "zz"}
    assert parts(grown.add(sv.from_items([extra])).delete(["zz"])) == parts(whole)


def test_an_index_is_pinned_to_its_version_until_it_is_refreshed(index: sv.Index) -> None:
    assert ids(index, "bear", by="keyword") == ["c"]
    newer = index.delete(["c"])
    assert ids(newer, "bear", by="keyword") == []
    assert ids(index, "bear", by="keyword") == ["c"]
    assert index.refresh().version == newer.version == 2
    assert ids(sv.Index(index.path, version=1), "bear", by="keyword") == ["c"]
    assert [(v.number, v.rows) for v in index.versions()] == [(1, 4), (2, 3)]
    assert newer.gc() > 0
    assert [v.number for v in newer.versions()] == [2]
    assert ids(newer, "red fox", by="keyword") == ["d", "b"]
    with pytest.raises(sv.SilvaError, match="there are: 2"):
        sv.Index(index.path, version=1)


def test_an_index_may_become_empty_and_grow_again(index: sv.Index) -> None:
    empty = index.delete(list("abcd"))
    assert ids(empty, "red fox") == []
    again = empty.add(passages())
    assert parts(again) == parts(index)


def test_rows_without_ids_are_numbered_on_and_on(tmp_path: Path) -> None:
    index = sv.from_columns({"text": ["one fox", "two foxes"]}).to_index(
        tmp_path / "i", keyword="text"
    )
    index = index.delete([1]).add(sv.from_columns({"text": ["a third fox"]}))
    assert ids(index, "fox", by="keyword") == [0, 2]


def test_numbered_rows_are_added_once(tmp_path: Path) -> None:
    first, second = (sv.from_columns({"text": [f"{a} fox", f"{a} hen"]}) for a in ("red", "old"))
    index = first.to_index(tmp_path / "i", keyword="text")
    for _ in range(2):  # as a script that was killed at its end is run again
        index = index.add(second).add(first)
        assert ids(index, "fox") == [0, 2]
        assert index.version == 2
    index = index.delete([3])
    assert ids(index.add(first), "fox") == [0, 2]
    assert ids(index.add(second), "fox") == [0, 2, 4]  # it had lost a row
    assert ids(sv.Index(index.path).add(second), "hen") == [1, 5]


def test_rows_with_ids_are_added_again_after_others(tmp_path: Path) -> None:
    first, second = (sv.from_columns({"id": [1], "text": [text]}) for text in ("a fox", "a hen"))
    index = first.to_index(tmp_path / "i", keyword="text").add(second)
    assert index.add(second).version == 2
    assert ids(index.add(first), "fox") == [1]


def test_added_rows_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    index = sv.from_columns({"id": [1], "text": ["a fox"], "year": [1999]}).to_index(
        tmp_path / "i", keyword="text"
    )
    more = sv.from_columns({"year": [2001], "text": ["two foxes, a fox"], "id": [2]})
    assert ids(index.add(more), "fox", where=sv.col("year") > 2000) == [2]


def test_every_phase_of_a_build_shows_its_progress(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = sv.from_columns({"text": ["a fox"] * 400, "v": rng.normal(size=(400, 8))})
    rows.to_index(tmp_path / "i", keyword="text", vector="v", recall=0.5, progress=True, workers=0)
    told = capfd.readouterr().err
    assert "epoch 0  2/2 batches" in told
    for phase in ("words", "BM25", "graph", "recall with 64 candidates"):
        assert f"index: {phase}  400/400\n" in told
    rows.to_index(tmp_path / "j", keyword="text", vector="v", recall=0.5, workers=0)
    assert capfd.readouterr().err == ""


class Noting:
    """An index that notes what it was asked."""

    def __init__(self, index: sv.Index) -> None:
        self.index, self.asked, self._of = self, [], index

    def contents(self) -> Any:
        return self

    def search(self, by: str, text: str | None, *more: Any) -> Any:
        self.asked.append(text)
        return self._of.contents().search(by, text, *more)


def test_equal_questions_of_a_block_are_searched_for_once(index: sv.Index) -> None:
    texts = ["red fox", "hen", None, "red fox", ["hen"], "hen"]
    vectors = [Letters().embed([t])[0] if isinstance(t, str) else None for t in texts]
    draw = Draw((0, 0), np.arange(6))
    for by, columns in (("keyword", [texts]), ("hybrid", [texts, vectors])):
        noting = Noting(index)
        params = {"index": noting, "by": by, "k": 2}
        with pytest.raises(RowErrors) as told:
            search([Values(column) for column in columns], params, draw)
        assert noting.asked == ["red fox", "hen"]
        assert sorted(told.value.errors) == [2, 4]
        hits = told.value.made.rows()
        assert [each[0]["id"] for each in hits if each] == ["d", "b", "d", "b"]
        assert hits[0][0] is not hits[3][0]  # a step may change its own


def test_the_same_build_is_not_built_again_and_another_one_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "i"
    one = sv.from_columns({"text": ["fox"]})
    first = one.to_index(path, keyword="text")
    assert one.to_index(path, keyword="text").version == first.version == 1
    assert sv.from_columns({"text": ["hen"]}).to_index(path, keyword="text").version == 2


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ({"text": ["a"]}, {}, "needs keyword"),
        ({"text": ["a"]}, {"keyword": "body"}, "no column 'body'"),
        ({"text": [1]}, {"keyword": "text"}, "not text"),
        ({"id": [1, 1], "text": ["a", "b"]}, {"keyword": "text"}, "the id 1 is there twice"),
        ({"id": [1.5], "text": ["a"]}, {"keyword": "text"}, "numbers or text"),
        ({"v": [[1.0], [1.0, 2.0]]}, {"vector": "v"}, "several lengths"),
        ({"v": [[1.0, float("nan")]]}, {"vector": "v"}, "NaN"),
        ({"v": [[math.inf, 1.0]]}, {"vector": "v"}, "infinity"),
        ({"v": ["a"]}, {"vector": "v"}, "not vectors"),
        ({"v": [[1.0]]}, {"vector": "v", "recall": 2}, "between 0 and 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    tmp_path: Path, rows: Any, arguments: Any, message: str
) -> None:
    with pytest.raises(sv.SilvaError, match=message):
        sv.from_columns(rows).to_index(tmp_path / "i", **arguments)
    with pytest.raises(sv.SilvaError, match="not an index"):
        sv.Index(tmp_path / "i")


# Damage and kills.


def test_damaged_parts_are_named_before_anything_decodes_them(index: sv.Index) -> None:
    for kind, part in parts(index).items():
        path = Path(index.path) / "parts" / part.name
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        folder = IndexFolder(index.path)
        with pytest.raises(sv.SilvaError, match="damaged"):
            folder.read(folder.version(1), kind)
        path.write_bytes(data + b"more")
        with pytest.raises(sv.SilvaError, match="damaged"):
            folder.read(folder.version(1), kind)
        path.write_bytes(data)


def test_no_link_is_followed_within_an_index(index: sv.Index, tmp_path: Path) -> None:
    part = parts(index)["rows"].name
    path = Path(index.path) / "parts" / part
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    folder = IndexFolder(index.path)
    with pytest.raises(sv.SilvaError, match="link"):
        folder.read(folder.version(1), "rows")


def test_a_changed_version_file_is_refused(index: sv.Index) -> None:
    path = Path(index.path) / "versions" / "0000000001.json"
    body = json.loads(path.read_bytes())
    body["body"]["rows"] = 5
    path.write_bytes(json.dumps(body, separators=(",", ":")).encode())
    with pytest.raises(sv.SilvaError, match="damaged"):
        sv.Index(index.path)


KILLED = """
import os, sys
import pyarrow.parquet
import silva as sv

path, numbered = sys.argv[1], sys.argv[2] == "True"
new = {"text": ["a new fox"]} if numbered else {"id": [7], "text": ["a new fox"]}
old, both = ({0}, {0, 1}) if numbered else ({1}, {1, 7})

def counted(real):
    def call(*arguments, **more):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return real(*arguments, **more)
    return call

def add():
    for name in ("replace", "link", "unlink", "fsync", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    sv.Index(path).add(sv.from_columns(new), workers=0)

def check():
    index = sv.Index(path)
    asked = sv.from_columns({"q": ["fox"]}).derive(hits=index.search("q"))
    (row,) = asked.loader(workers=0)
    assert {hit["id"] for hit in row["hits"]} == (old if index.version == 1 else both)

def run(function):
    child = os.fork()  # the parent has run nothing: it has no threads
    if not child:
        try:
            function()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for left in range(200):
    ended = run(add)
    assert ended in (0, 9), ended
    assert run(check) == 0
    if ended == 0:
        print("killed", left, "times")
        break
"""


@pytest.mark.rest
@pytest.mark.parametrize("numbered", [False, True])
def test_a_kill_at_any_call_leaves_the_version_before_or_the_new_one(
    tmp_path: Path, numbered: bool
) -> None:
    path = tmp_path / "i"
    rows = {"text": ["an old fox"]} | ({} if numbered else {"id": [1]})
    sv.from_columns(rows).to_index(path, keyword="text")
    command = [sys.executable, "-c", KILLED, str(path), str(numbered)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("killed")
    index = sv.Index(path)
    index.gc()
    assert set(os.listdir(path / "parts")) == {part.name for part in parts(index).values()}
    assert os.listdir(path / "versions") == [f"{index.version:010d}.json"]


def test_a_build_that_failed_goes_on_where_it_was(tmp_path: Path) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    broken.touch()

    def noted(x: int) -> str:
        if x == 4999 and broken.exists():
            raise ValueError("broken")
        with open(log, "a") as file:
            file.write("x")
        return f"text {x}"

    rows = sv.from_columns({"x": range(5000)}).derive(text=noted)
    with pytest.raises(sv.RowError):
        rows.to_index(tmp_path / "i", keyword="text", workers=0)
    log.write_text("")
    broken.unlink()
    assert len(rows.to_index(tmp_path / "i", keyword="text", workers=0)) == 5000
    assert len(log.read_text()) < 1500  # of 5,000: 4,096 were there
    assert not os.listdir(tmp_path / "i" / "building")
    os.makedirs(tmp_path / "i" / "building" / "killed")
    sv.Index(tmp_path / "i").gc()
    assert not os.listdir(tmp_path / "i" / "building")


# Reranking.


def test_rerank_sorts_by_a_function_and_breaks_ties_by_id(index: sv.Index) -> None:
    def length(question: str, text: str) -> float:
        return -float(len(text) > 10)

    rows = sv.from_columns({"question": ["red bear"]})
    hits = rows.derive(hits=index.search("question", by="vector", k=4, embed=Letters()))
    best = hits.derive(hits=sv.rerank("question", "hits", by=length, keep=3))
    assert [hit["id"] for hit in next(iter(best))["hits"]] == ["a", "b", "c"]


def test_rerank_by_a_model_asks_for_each_pair_once(index: sv.Index) -> None:
    rows = sv.from_columns({"question": ["red fox", "red fox"]})
    hits = rows.derive(hits=index.search("question", by="keyword"))
    best = hits.derive(hits=sv.rerank("question", "hits", by=Letters(), keep=1))
    first, second = (row["hits"] for row in best)
    assert first == second
    assert len(first) == 1
    assert first[0]["score"] < 0


def test_rerank_says_that_ids_cannot_be_sorted() -> None:
    hits = [{"id": None, "text": "a"}, {"id": 1, "text": "b"}]
    rows = sv.from_items([{"q": "x", "h": hits}])
    made = rows.derive(h=sv.rerank("q", "h", by=lambda q, text: 1.0))
    with pytest.raises(sv.RowError, match="sorted by their ids"):
        made.head()


def test_rerank_refuses_what_is_no_list_of_hits() -> None:
    rows = sv.from_columns({"q": ["a"], "hits": ["text"]})
    with pytest.raises(sv.RowError, match="list of hits"):
        list(rows.derive(hits=sv.rerank("q", "hits", by=lambda q, t: 0.0)))
    with pytest.raises(sv.PlanError, match="model or a function"):
        sv.rerank("q", "hits", by=3)  # type: ignore[arg-type]
