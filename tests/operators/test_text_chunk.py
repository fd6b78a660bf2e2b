"""Text cut into chunks: nothing is lost, and boundaries are where they are said to be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Values
from silva.plan.operator import operator
from silva.testing import assert_same_stream

texts = st.text(st.sampled_from("ab é\n\t\u3000\x1f😀"), max_size=30) | st.text(max_size=20)
sizes = st.integers(1, 9)


def chunks(row: Any, *args: Any, **named: Any) -> Any:
    term = sv.text("x").chunk(*args, **named).term
    made = operator(term.op).kernel([Values([row])], dict(term.params), None).rows()[0]
    return made if made is None else list(made)


@pytest.mark.operators("text.chunk")
@given(texts, sizes)
def test_chunks_of_characters_join_to_the_text(text: str, size: int) -> None:
    made = chunks(text, size, by="characters")
    assert "".join(made) == text
    assert all(len(chunk) == size for chunk in made[:-1])
    assert all(made)


@given(texts, sizes, st.integers(0, 8))
def test_chunks_overlap_by_as_much_as_is_asked_and_no_chunk_lies_in_another(
    text: str, size: int, overlap: int
) -> None:
    overlap = min(overlap, size - 1)
    made = chunks(text, size, overlap, "characters")
    assert made == [text] if 0 < len(text) <= size else True
    whole = made[0] if made else ""
    for chunk in made[1:]:
        assert whole.endswith(chunk[:overlap])
        assert len(chunk) > overlap
        whole += chunk[overlap:]
    assert whole == text


@pytest.mark.operators("text.chunk")
@given(texts, sizes, st.integers(0, 8))
def test_chunks_of_words_hold_every_word_once_and_the_space_between_them(
    text: str, size: int, overlap: int
) -> None:
    overlap = min(overlap, size - 1)
    made = chunks(text, size, overlap)
    words = [chunk.split() for chunk in made]
    assert [w for i, c in enumerate(words) for w in (c if i == 0 else c[overlap:])] == text.split()
    assert all(len(c) == size for c in words[:-1])
    assert all(chunk in text and chunk == chunk.strip() for chunk in made)


def test_chunk_by_example() -> None:
    page = " One two,  three\nfour five "
    assert chunks(page, 2) == ["One two,", "three\nfour", "five"]
    assert chunks(page, 3, overlap=1) == ["One two,  three", "three\nfour five"]
    assert chunks("abcdefg", 4, 2, by="characters") == ["abcd", "cdef", "efg"]
    assert chunks("", 2) == chunks("  ", 2) == chunks("", 2, by="characters") == []
    assert chunks(None, 2) is None


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.chunk(0),
        lambda x: x.chunk(4, overlap=4),
        lambda x: x.chunk(4, overlap=-1),
        lambda x: x.chunk(4, by="lines"),
    ],
)
def test_arguments_are_checked_as_they_are_written(write: Any) -> None:
    with pytest.raises(sv.PlanError):
        write(sv.text("x"))


def test_a_row_for_each_chunk_however_it_is_run() -> None:
    pages = [{"id": i, "page": " ".join(f"w{i}.{j}" for j in range(i))} for i in range(9)]
    rows = sv.from_items(pages).derive(chunk=sv.text("page").chunk(3, overlap=1)).explode("chunk")
    assert [row["chunk"] for row in rows.head(3)] == ["w1.0", "w2.0 w2.1", "w3.0 w3.1 w3.2"]
    assert_same_stream(rows.select("id", "chunk").batch(4), workers=(2,), epochs=1)
