"""Metrics: functions from a row to a number, which name the columns that they compare."""

from __future__ import annotations

import inspect
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import ColumnError, PlanError
from silva.plan.arguments import explains, names_of, natural, shown
from silva.plan.choice import choices_in
from silva.plan.expr import Expr, columns_read
from silva.plan.function import describe

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SCORE = "score of a metric"
"""A column that no expression reads."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Metric:
    """A number for each row: the mean over rows is what a pipeline is judged by."""

    name: str
    reads: tuple[str, ...]
    score: Callable[..., float] | Expr
    """A function of these columns, or an expression over them, such as a model that judges."""

    def __call__(self, row: Mapping[str, Any]) -> float:
        return float(self.scores([row], [{}])[0])

    def scores(
        self, rows: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any] | None]
    ) -> np.ndarray:
        """The scores of answers to rows; 0 where there is no answer. An expression is evaluated on
        all of them at once, so that a model that judges gets batches."""
        found = np.zeros(len(rows))
        there = [i for i, answer in enumerate(answers) if answer is not None]
        values = [self._values({**rows[i], **(answers[i] or {})}) for i in there]
        made = self._judged(values) if isinstance(self.score, Expr) else [
            self.score(*one.values()) for one in values
        ]  # fmt: skip
        found[there] = [self._number(i, one) for i, one in zip(there, made, strict=True)]
        return found

    def _number(self, row: int, value: Any) -> float:
        """A score, of which a mean can be made."""
        is_real = isinstance(value, int | float | np.integer | np.floating | np.bool_)
        try:
            if is_real and np.isfinite(found := float(value)):
                return found
        except OverflowError:  # a number beyond all floats
            pass
        raise ColumnError(
            f"the metric {self.name} is a finite number for each row, and gives {shown(value)} for "
            f"row {row}"
        )

    def _values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in self.reads if name not in row]
        if missing:
            raise ColumnError(
                f"the metric {self.name} reads {missing[0]!r}, which the rows do not have: they "
                f"have {', '.join(row)}"
            )
        return {name: row[name] for name in self.reads}

    def _judged(self, values: list[dict[str, Any]]) -> list[Any]:
        """What the expression gives for rows. It is a pipeline of its own: a row that it fails on
        is an error, since neither 0 nor any other score would be true."""
        from silva.serve.requests import requests

        judge = requests(*self.reads).derive(self.score, into=_SCORE)
        return [row[_SCORE] for row in judge.run(values, backend="inline")]


def metric_of(given: Any) -> Metric:
    """A metric, or a function that is one: its parameters name the columns that it reads. Or an
    expression, such as `model.score("Is {answer} as good as {gold}?", "yes")`."""
    if isinstance(given, Metric):
        return given
    if isinstance(given, Expr):
        reads = columns_read(given.term)
        if not reads:
            raise PlanError(f"a metric reads the answer or another column, unlike {given!r}")
        if choices_in(given.term):
            raise PlanError(f"a metric leaves nothing open, and {given!r} has a choice")
        return Metric(repr(given), reads, given)
    if not callable(given):
        raise PlanError(
            f"a metric is a function of columns, an expression, or sv.f1(…) and the like, not "
            f"{given!r}"
        )
    return Metric(describe(given), tuple(inspect.signature(given).parameters), given)


@explains
def exact_match(answer: str, gold: str) -> Metric:
    """1 where the answer is the gold one, or one of several, but for case, articles and
    punctuation.

    >>> exact_match("a", "g")({"a": "The Rhine.", "g": ["rhine", "Rhein"]})
    1.0
    """
    reads = names_of("exact_match(answer, gold)", (answer, gold))
    return Metric(f"exact_match({answer})", reads, _exact)


@explains
def f1(answer: str, gold: str) -> Metric:
    """The words that the answer shares with the gold one, as the harmonic mean of precision and
    recall; of several, with the best.

    >>> f1("a", "g")({"a": "in the river Rhine", "g": "Rhine"})
    0.5
    """
    reads = names_of("f1(answer, gold)", (answer, gold))
    return Metric(f"f1({answer})", reads, _f1)


@explains
def recall_at(k: int, hits: str, gold: str) -> Metric:
    """The share of the gold ids that are among the first `k` hits.

    >>> recall_at(1, "h", "g")({"h": [{"id": 3}, {"id": 5}], "g": [5, 3]})
    0.5
    """
    natural("recall_at(k, hits, gold)", k, least=1)
    reads = names_of("recall_at(k, hits, gold)", (hits, gold))

    def score(found: Any, wanted: Any) -> float:
        try:
            ids = [hit["id"] for hit in list(() if found is None else found)[:k]]
        except (TypeError, KeyError, IndexError):
            raise ColumnError(
                f"recall_at reads the ids of hits, and {hits!r} holds {shown(found)}"
            ) from None
        gold_ids = _several(wanted)
        return sum(one in ids for one in gold_ids) / len(gold_ids) if gold_ids else 1.0

    return Metric(f"recall_at({k}, {hits})", reads, score)


def _exact(answer: Any, gold: Any) -> float:
    words = normalised(answer)
    return float(any(words == normalised(one) for one in _several(gold)))


def _f1(answer: Any, gold: Any) -> float:
    return max(
        (_overlap(normalised(answer), normalised(one)) for one in _several(gold)), default=0.0
    )


def _overlap(found: list[str], wanted: list[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted))


def normalised(text: Any) -> list[str]:
    """The words of an answer as SQuAD compares them: lower case, no punctuation, no articles."""
    plain = "" if text is None else str(text)
    return _ARTICLES.sub(" ", plain.lower().translate(_PUNCTUATION)).split()


def _several(gold: Any) -> list[Any]:
    is_one = isinstance(gold, str | bytes | int | float) or not isinstance(gold, Iterable)
    return [gold] if is_one else list(gold)
