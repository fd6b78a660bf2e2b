"""Expressions as data: they come back equal, and nothing else comes back at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.plan.expr import Call, Col, Literal, RowId, Term
from silva.plan.fingerprint import digest
from silva.store.derived.terms import decode_term, decode_value, encode_term, encode_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.floats(width=32).map(np.float32)
    | st.integers(0, 255).map(np.uint8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
TERMS: st.SearchStrategy[Term] = st.recursive(
    st.builds(Col, st.text(min_size=1, max_size=3)) | st.builds(Literal, VALUES) | st.just(RowId()),
    lambda inner: st.builds(
        Call,
        st.sampled_from(["add", "less", "num.clip", "image.decode", "list.length"]),
        st.lists(inner, min_size=1, max_size=2).map(tuple),
        st.dictionaries(st.text(min_size=1, max_size=3), VALUES, max_size=2).map(
            lambda d: tuple(d.items())
        ),
    ),
    max_leaves=6,
)


@given(VALUES)
def test_values_come_back_with_their_types(value: Any) -> None:
    again = decode_value(json.loads(json.dumps(encode_value(value))))
    assert digest(again) == digest(value)


@given(TERMS)
def test_terms_come_back_with_their_fingerprints(term: Term) -> None:
    data = encode_term(term)
    assert data is not None
    assert digest(decode_term(json.loads(json.dumps(data)))) == digest(term)


def test_arrays_come_back() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    again = decode_value(json.loads(json.dumps(encode_value(value))))
    assert again.dtype == value.dtype
    assert (again == value).all()


def test_a_part_that_stands_twice_stays_one() -> None:
    x = sv.col("x") * 2
    again = decode_term(json.loads(json.dumps(encode_term((x + x).term))))
    assert isinstance(again, Call)
    assert again.args[0] is again.args[1]


def test_what_is_no_data_is_not_encoded() -> None:
    assert encode_term(Literal(object())) is None
    assert encode_term(Call("text.to_ids", (Col("x"),), (("vocabulary", print),))) is None
    assert encode_term(Literal(1 << 70)) is None


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        "x",
        [["col", 1]],
        [["eval", "print(1)"]],
        [["call", "add", [0], []]],
        [["col", "x"], ["call", "os.system", [0], []]],
        [["col", "x"], ["call", "add", [-1, 0], []]],
        [["literal", {"float": "1e5"}]],
        [["literal", {"pickle": "gASVAA=="}]],
        [["literal", {"scalar": ["|O", [], "AAAA"]}]],
        [["literal", {"array": ["<f4", [9], "AAAA"]}]],
        [["literal", {"tuple": [], "list": []}]],
    ],
)
def test_what_no_term_was_encoded_to_is_refused(data: Any) -> None:
    with pytest.raises(sv.SilvaError):
        decode_term(data)
