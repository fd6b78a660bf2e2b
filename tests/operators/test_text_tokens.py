"""Tokenizers and lists of tokens, against plain loops over the same libraries."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import (
    ByteLevelBPETokenizer,
    Tokenizer,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

import silva as sv
from silva.columns import Array, Column, Lists, Strings, Values, from_arrow
from silva.errors import PlanError
from silva.operators.text import TokensExpr, text
from silva.plan.expr import Call, Expr, walk
from silva.plan.fingerprint import digest, opaque_parts
from silva.plan.operator import operator
from silva.testing import assert_same_stream

X = text("x")
TEXT = "the forest is green and a small bird sings in it ; naïve café, déjà vu — 日本語 👩‍🚀"
WORDS = TEXT.split()
LINES = [
    " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(i * 5 % 19)) for i in range(40)
]
rows_of_text = st.lists(
    st.none() | st.sampled_from(LINES) | st.text(st.characters(exclude_categories=["Cs"])),
    max_size=6,
)


def _train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["[CLS]", "[SEP]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return tokenizer


BPE = _train()
VOCABULARY = {word: i for i, word in enumerate(dict.fromkeys(" ".join(LINES).split()))}
TIKTOKEN = tiktoken.Encoding(
    "tiny",
    pat_str=r" ?\w+|\s+|[^\w\s]+",
    mergeable_ranks={
        **{bytes([i]): i for i in range(256)},
        b"th": 256,
        b"the": 257,
        b" f": 258,
    },
    special_tokens={"<|end|>": 300},
)


def words_to_ids(line: str) -> list[int]:
    return [VOCABULARY.get(word, -1) for word in line.split()]


def run(expr: Expr, column: Column) -> Column:
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), None)
    return column


def plain(column: Column) -> list[Any]:
    return [x.tolist() if isinstance(x, np.ndarray) else x for x in column.rows()]


def forms(rows: list[Any]) -> list[Column]:
    arrays = [pa.array(rows, kind) for kind in (pa.string(), pa.large_string())]
    sliced = pa.array([None, *rows, "end"], pa.string()).slice(1, len(rows))
    return [*map(Strings, arrays), Strings(sliced), Values(rows)]


TOKENIZERS: dict[str, tuple[TokensExpr, Callable[[str], Any]]] = {
    "tokenizers": (X.tokenize(BPE), lambda x: BPE.encode(x, add_special_tokens=False).ids),
    "special": (X.tokenize(BPE, special_tokens=True), lambda x: BPE.encode(x).ids),
    "strings": (
        X.tokenize(BPE, strings=True),
        lambda x: BPE.encode(x, add_special_tokens=False).tokens,
    ),
    "tiktoken": (X.tokenize(TIKTOKEN), TIKTOKEN.encode_ordinary),
    "function": (X.tokenize(words_to_ids), words_to_ids),
    "arrays": (X.tokenize(lambda x: np.array(words_to_ids(x), np.int64)), words_to_ids),
    "words": (X.tokenize(str.split, strings=True), str.split),
}


@pytest.mark.operators("text.tokenize", "text.python.tokenize")
@pytest.mark.parametrize("name", TOKENIZERS)
@given(rows=rows_of_text)
@example(rows=[])
@example(rows=[None])
@example(rows=["", None, "", "[CLS] <|end|> the"])
@example(rows=LINES)
def test_tokens_are_those_of_the_library_in_every_column(name: str, rows: list[Any]) -> None:
    expr, reference = TOKENIZERS[name]
    expected = [None if row is None else list(reference(row)) for row in rows]
    for column in forms(rows):
        out = run(expr, column)
        assert plain(out) == expected
        assert isinstance(out, Lists)
        if name in ("strings", "words"):
            assert isinstance(out.values, Strings)
        else:
            assert isinstance(out.values, Array)
            assert out.values.data.dtype == np.int32


# What a tokenizer carries along, and what not.


def test_padding_and_truncation_of_the_tokenizer_are_left_behind() -> None:
    tokenizer = Tokenizer.from_str(BPE.to_str())
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(2)
    expr = X.tokenize(tokenizer)
    assert expr.term == X.tokenize(BPE).term
    assert plain(run(expr, Values(LINES))) == plain(run(X.tokenize(BPE), Values(LINES)))


def test_a_tokenizer_is_taken_as_it_is_when_given() -> None:
    tokenizer = Tokenizer.from_str(BPE.to_str())
    expr = X.tokenize(tokenizer)
    tokenizer.add_tokens(["forest"])
    assert plain(run(expr, Values(LINES))) == plain(run(X.tokenize(BPE), Values(LINES)))
    assert expr.term != X.tokenize(tokenizer).term


def test_special_tokens_in_a_text_are_split_if_the_tokenizer_says_so() -> None:
    tokenizer = Tokenizer.from_str(BPE.to_str())
    tokenizer.encode_special_tokens = True
    (found,) = plain(run(X.tokenize(tokenizer), Values(["[CLS]"])))
    assert found == tokenizer.encode("[CLS]", add_special_tokens=False).ids
    assert found != plain(run(X.tokenize(BPE), Values(["[CLS]"])))[0]
    again = cloudpickle.loads(cloudpickle.dumps(X.tokenize(tokenizer).term))
    assert plain(run(Expr(again), Values(["[CLS]"]))) == [found]


def test_files_objects_and_wrappers_are_the_same_tokenizer(tmp_path: Path) -> None:
    class Fast:
        """As transformers' fast tokenizers: callable, with the tokenizer inside."""

        backend_tokenizer = BPE

        def __call__(self, line: str) -> dict[str, Any]:
            raise AssertionError

    file = tmp_path / "bpe.json"
    BPE.save(str(file))
    terms = [X.tokenize(t).term for t in (BPE, file, str(file), Fast())]
    assert all(term == terms[0] for term in terms)
    assert len(set(terms)) == 1
    wrapper = ByteLevelBPETokenizer()
    assert X.tokenize(wrapper).term == X.tokenize(wrapper._tokenizer).term


def test_expressions_are_shown_short(tmp_path: Path) -> None:
    file = tmp_path / "bpe.json"
    BPE.save(str(file))
    assert repr(X.tokenize(file)) == "x.tokenize(tokenizer='bpe.json')"
    assert repr(X.tokenize(BPE)) == f"x.tokenize(tokenizer of {BPE.get_vocab_size()})"
    assert repr(X.tokenize(TIKTOKEN)) == "x.tokenize(tokenizer=tiktoken tiny)"
    assert repr(X.tokenize(words_to_ids)) == "x.tokenize(tokenizer=words_to_ids)"
    assert repr(X.tokenize(BPE, strings=True)).endswith("strings=True)")


# Identity.

_CHILD = """
import sys, pickle
from silva.plan.fingerprint import digest
print([digest(term) for term in pickle.load(sys.stdin.buffer)])
"""


def test_fingerprints_are_the_same_in_another_process() -> None:
    terms = [X.tokenize(BPE).term, X.tokenize(TIKTOKEN).term, X.split().to_ids(VOCABULARY).term]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], input=pickle.dumps(terms), capture_output=True, check=True
    )
    assert child.stdout.decode().strip() == str([digest(term) for term in terms])
    assert opaque_parts(terms) == []


def test_fingerprints_change_with_the_contents(tmp_path: Path) -> None:
    file = tmp_path / "bpe.json"
    BPE.save(str(file))
    before = X.tokenize(file).term
    (tmp_path / "copy.json").write_bytes(file.read_bytes())
    assert digest(X.tokenize(tmp_path / "copy.json").term) == digest(before)
    larger = Tokenizer.from_file(str(file))
    larger.add_tokens(["forest"])
    larger.save(str(file))
    assert digest(X.tokenize(file).term) != digest(before)
    assert X.tokenize(file).term != before


def test_fingerprints_of_other_tokenizers_change_with_the_contents() -> None:
    other = tiktoken.Encoding(
        "tiny",
        pat_str=TIKTOKEN._pat_str,
        mergeable_ranks={**TIKTOKEN._mergeable_ranks, b" g": 259},
        special_tokens=TIKTOKEN._special_tokens,
    )
    pairs = [
        (X.tokenize(TIKTOKEN), X.tokenize(other)),
        (X.tokenize(lambda x: [len(x)]), X.tokenize(lambda x: [len(x) + 1])),
        (X.tokenize(BPE), X.tokenize(BPE, special_tokens=True)),
        (X.split().to_ids(["a", "b"]), X.split().to_ids(["b", "a"])),
        (X.split().to_ids(["a"]), X.split().to_ids(["a"], unknown=1)),
    ]
    for a, b in pairs:
        assert digest(a.term) != digest(b.term)
        assert a.term != b.term


@pytest.mark.parametrize("name", TOKENIZERS)
def test_expressions_travel(name: str) -> None:
    expr, _ = TOKENIZERS[name]
    there = cloudpickle.loads(cloudpickle.dumps(expr.term))
    column = Values([*LINES, None])
    assert plain(run(Expr(there), column)) == plain(run(expr, column))
    if name not in ("function", "arrays"):  # functions are equal to themselves alone
        assert there == expr.term


# Threads belong to silva.


def _environment(name: str) -> str | None:
    """What native code sees; `os.environ` is Python's own copy."""
    get = ctypes.CDLL(None).getenv
    get.restype = ctypes.c_char_p
    value = get(name.encode())
    return None if value is None else value.decode()


_THREADS = """
import json, sys
import psutil
from silva.columns import Values
from silva.operators.text import text
from silva.plan.operator import operator

call = text("x").tokenize(sys.argv[1]).term
lines = ["a line of text " * 20] * 500
tokenize = operator(call.op).kernel
tokenize([Values(["x"])], dict(call.params), None)
before = psutil.Process().num_threads()
tokenize([Values(lines)], dict(call.params), None)
ours = psutil.Process().num_threads()
from tokenizers import Tokenizer
Tokenizer.from_file(sys.argv[1]).encode_batch_fast(lines)
print(json.dumps([before, ours, psutil.Process().num_threads()]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads as Linux does")
def test_the_library_starts_no_threads_for_silva_but_does_for_you(tmp_path: Path) -> None:
    BPE.save(str(tmp_path / "bpe.json"))
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TOKENIZERS_", "RAYON_"))}
    child = subprocess.run(
        [sys.executable, "-c", _THREADS, str(tmp_path / "bpe.json")],
        env={**clean, "RAYON_NUM_THREADS": "3"},
        capture_output=True,
        check=True,
    )
    before, ours, yours = json.loads(child.stdout)
    assert ours == before
    assert yours == before + 3


@pytest.mark.parametrize("chosen", [None, "true", "false"])
def test_the_environment_is_as_it_was(chosen: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TOKENIZERS_PARALLELISM"
    monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv(name, chosen)
    expected = plain(run(X.tokenize(BPE), Values(LINES)))
    found: list[Any] = []

    def work() -> None:
        found.extend(plain(run(X.tokenize(BPE), Values(LINES))) == expected for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 80
    assert os.environ.get(name) == chosen
    assert _environment(name) == chosen


# Lists of tokens.

ids = st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=5), max_size=6)
few = st.lists(st.integers(0, 9), max_size=3).map(tuple)


def token_lists(rows: list[Any]) -> list[Column]:
    """Lists of int32 in every column that can hold them."""
    arrow = pa.array([[7], *rows, None], pa.list_(pa.int32())).slice(1, len(rows))
    arrays = [None if row is None else np.array(row, np.int32) for row in rows]
    return [from_arrow(arrow), Values(rows), Values(arrays)]


Y = TokensExpr("y")


@pytest.mark.operators("text.add_tokens")
@given(rows=ids, before=few, after=few)
@example(rows=[[], None, [1]], before=(5,), after=())
def test_tokens_are_added_to_every_row(rows: list[Any], before: Any, after: Any) -> None:
    expected = [None if row is None else [*before, *row, *after] for row in rows]
    for column in token_lists(rows):
        assert plain(run(Y.add_tokens(before, after), column)) == expected
    words = [None if row is None else [str(x) for x in row] for row in rows]
    column = run(X.split(), Values([None if row is None else " ".join(row) for row in words]))
    out = run(Y.add_tokens([str(x) for x in before], [str(x) for x in after]), column)
    assert plain(out) == [None if row is None else [str(x) for x in row] for row in expected]


def test_rows_of_one_length_stay_an_array() -> None:
    column = Array(np.array([[1, 2], [3, 4]], np.int32), np.array([True, False]))
    out = run(Y.add_tokens([8], [9]), column)
    assert isinstance(out, Array)
    assert out.data.dtype == np.int32
    assert out.valid is column.valid
    assert out.data[0].tolist() == [8, 1, 2, 9]


@given(rows=ids, b=few, c=few, d=few, a=few, n=st.integers(0, 8))
def test_laws(rows: list[Any], b: Any, c: Any, d: Any, a: Any, n: int) -> None:
    (column, *_) = token_lists(rows)
    twice = run(Y.add_tokens(c, d).add_tokens(b, a), column)
    assert plain(twice) == plain(run(Y.add_tokens(b + c, d + a), column))
    if n >= len(b):
        cut = run(Y.truncate(n - len(b)).add_tokens(b), column)
        assert plain(run(Y.add_tokens(b).truncate(n), column)) == plain(cut)


@pytest.mark.operators("text.to_ids")
@given(
    rows=st.lists(st.none() | st.lists(st.sampled_from("abcd")), max_size=6), n=st.integers(0, 4)
)
def test_words_become_ids(rows: list[Any], n: int) -> None:
    expected = [None if row is None else ["abc".find(x) for x in row] for row in rows]
    joined = run(X.split(), Values([None if row is None else " ".join(row) for row in rows]))
    for column in (joined, Values(rows)):
        for vocabulary in (["a", "b", "c"], {"a": 0, "b": 1, "c": 2}):
            out = run(Y.to_ids(vocabulary, unknown=-1), column)
            assert plain(out) == expected
            assert isinstance(out, Lists)
            assert isinstance(out.values, Array)
            assert out.values.data.dtype == np.int32
    vocabulary = {"a": 0, "b": 1, "c": 2, "?": -1}
    first = run(Y.truncate(n).to_ids(vocabulary, unknown="?"), joined)
    assert plain(first) == plain(run(Y.to_ids(vocabulary, unknown="?").truncate(n), joined))


def test_a_null_among_words_stays_a_null() -> None:
    column = Lists(Strings(pa.array(["a", None, "b"])), np.array([0, 2, 3]))
    assert plain(run(Y.to_ids(["a", "b"]), column)) == [[0, None], [1]]


# Bad input.


@pytest.mark.parametrize(
    ("expr", "row", "message"),
    [
        (X.split().to_ids(["a"]), "a b", "'b' is not in the vocabulary"),
        (X.tokenize(BPE).to_ids(["a"]), "a b", "ids already"),
        (X.tokenize(BPE).add_tokens(["[CLS]"]), "a", "cannot be added"),
        (X.split().add_tokens([0]), "a", "another type"),
        (X.tokenize(str.split), "a", "strings=True"),
        (X.tokenize(len), "a", "a list of ids, not 1"),
        (X.tokenize(lambda x: [0.5]), "a", "a list of ids"),
        (X.tokenize(lambda x: [2**31]), "a", "int32"),
        (X.tokenize(lambda x: [2**70]), "a", "a list of ids"),
        (X.tokenize(words_to_ids, strings=True), "a", "list of strings"),
        (X.tokenize(str, strings=True), "a", "list of strings"),
        (X.tokenize(BPE), b"a", r"decode\(\) comes first"),
        (X.tokenize(TIKTOKEN), "\ud800", "surrogate"),
    ],
)
def test_a_bad_row_is_an_error(expr: Expr, row: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(expr, Values([row]))


class Piece:
    def pre_tokenize(self, _: Any) -> None: ...


def _written_in_python() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Piece())
    return tokenizer


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: X.tokenize("missing.json"), "'missing.json' cannot be read"),
        (lambda: X.tokenize(__file__), "holds no tokenizer"),
        (lambda: X.tokenize(5), "a tokenizer is the path"),
        (lambda: X.tokenize(Tokenizer(models.BPE(dropout=0.1))), "dropout"),
        (lambda: X.tokenize(_written_in_python()), "has no JSON"),
        (lambda: X.tokenize(TIKTOKEN, special_tokens=True), "use add_tokens"),
        (lambda: X.tokenize(len, special_tokens=True), "use add_tokens"),
        (lambda: X.tokenize(TIKTOKEN, strings=True), "bytes"),
        (lambda: X.tokenize(BPE, strings="yes"), "strings is True or False"),  # type: ignore[arg-type]
        (lambda: Y.add_tokens("[CLS]"), "before is a list of tokens"),
        (lambda: Y.add_tokens(after=5), "after is a list of tokens"),  # type: ignore[arg-type]
        (lambda: Y.add_tokens([1], ["a"]), "all ids or all words"),
        (lambda: Y.add_tokens([1.5]), "whole number"),  # type: ignore[arg-type]
        (lambda: Y.add_tokens([2**31]), "int32"),
        (lambda: Y.to_ids("abc"), "a dict or a list"),
        (lambda: Y.to_ids(["a", "b", "a"]), "'a' twice"),
        (lambda: Y.to_ids({1: 1}), "are strings, not 1"),  # type: ignore[dict-item]
        (lambda: Y.to_ids({"a": "b"}), "int32, not 'b'"),  # type: ignore[dict-item]
        (lambda: Y.to_ids(["a"], unknown="?"), "does not have"),
        (lambda: Y.to_ids(["a"], unknown=1.5), "unknown is a whole number"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked_when_written(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        write()


# Through the public face.


def test_a_batch_is_what_a_loop_gives() -> None:
    tokens = X.tokenize(BPE).truncate(7).add_tokens(before=[0]).pad(8, 1)
    batch = sv.from_columns({"x": LINES}).derive(tokens=tokens).batch(len(LINES)).head(1)[0]
    expected = []
    for line in LINES:
        row = [0, *BPE.encode(line, add_special_tokens=False).ids[:7]]
        expected.append(row + [1] * (8 - len(row)))
    assert batch["tokens"].tolist() == expected
    assert batch["tokens"].dtype == np.int32


def test_the_stream_is_the_same_however_it_is_run() -> None:
    lines = [None if i % 9 == 4 else line for i, line in enumerate(LINES[:30])]
    pipeline = (
        sv.from_columns({"x": lines})
        .shuffle(seed=1)
        .derive(ragged=X.tokenize(BPE, special_tokens=True))
        .derive(padded=X.tokenize(TIKTOKEN).truncate(9).add_tokens([300]).pad(10))
        .derive(words=X.tokenize(lambda x: x.split(), strings=True).add_tokens(after=["."]))
        .derive(ids=X.split().to_ids(VOCABULARY, unknown=-1))
        .batch(7)
    )
    assert_same_stream(pipeline, workers=(2,), epochs=1)


def test_a_word_that_is_missing_is_named_with_its_row() -> None:
    pipeline = sv.from_columns({"x": ["a", "a b"]}).derive(y=X.split().to_ids(["a"]))
    with pytest.raises(sv.RowError, match="row 0:1 failed") as caught:
        list(pipeline)
    assert "'b' is not in the vocabulary" in str(caught.value)
