"""`Index`: an index as a value, and the expression that searches it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Unpack, cast

from silva.errors import PlanError, SilvaError
from silva.operators.arguments import column_name
from silva.options import WriteArguments
from silva.pipeline import Pipeline
from silva.plan.arguments import (
    explains,
    explains_verbs,
    name_of,
    natural,
    one_of,
    several,
    share,
    shown,
)
from silva.plan.choice import spread_expression
from silva.plan.class_tags import tagged
from silva.plan.expr import Call, Col, Expr, RowId, Term, columns_read, show_term, walk
from silva.plan.node import Derive, Node, OneInput
from silva.plan.open import chooses
from silva.plan.operator import operator
from silva.plan.schema import columns
from silva.serve.index import build
from silva.serve.index.contents import Contents
from silva.serve.index.opened import indices
from silva.serve.index.version import IndexFolder, Roles, Version
from silva.serve.models.model import Model, ModelRef, model_or_none
from silva.store.versions.locks import hold_table

By = Literal["keyword", "vector", "hybrid"]
_NUMBERS = "id"
"""The column of ids where the pipeline has none."""


@dataclass(frozen=True)
class IndexVersion:
    """One version of an index."""

    number: int
    time: datetime
    what: str
    rows: int


@explains_verbs
class Index:
    """An index of passages: `sv.Index("idx")`.

    It is pinned to the version that was the last when it was opened, or to `version=`; `refresh()`
    gives the last one. `embed=` is the model that turns queries into vectors. It must be the one
    that made the vectors of the passages.
    """

    def __init__(
        self, path: str | Path, *, version: int | None = None, embed: Model | None = None
    ) -> None:
        folder = IndexFolder(path)
        self.path = str(Path(os.path.abspath(folder.path)))
        if version is None:
            found = folder.head()
            if found is None:
                raise SilvaError(
                    f"{str(path)!r} is not an index; pipeline.to_index(path, …) makes one"
                )
        else:
            found = folder.version(natural("Index(version=…)", version, least=1))
        self._version: Version = found
        self.is_pinned = version is not None
        """Whether the version was chosen, and is not just the last one."""
        self._embed = model_or_none("Index(embed=…)", embed)
        if embed is not None:
            self._check_model(embed)

    def __repr__(self) -> str:
        recall = self._version.recall
        told = "" if recall is None else f", recall ≥ {recall.bound:.3f}"
        rows, number = self._version.rows, self._version.number
        return f"index of {rows:,} rows (version {number}{told}) in {self.path}"

    @property
    def version(self) -> int:
        return self._version.number

    @property
    def identity(self) -> str:
        """All that its answers depend on."""
        return self._version.identity

    @property
    def recall(self) -> float | None:
        """The share of the true neighbours that an approximate search finds at least, with 95 %
        confidence; None where the search is exact."""
        return None if self._version.recall is None else self._version.recall.bound

    def __len__(self) -> int:
        return self._version.rows

    def contents(self) -> Contents:
        """The index, opened once in this process."""
        return indices().contents(self.path, self._version)

    @chooses
    @explains
    def search(
        self,
        question: str | None = None,
        *,
        by: By | None = None,
        k: int = 5,
        where: Expr | None = None,
        vector: str | None = None,
        embed: Model | None = None,
    ) -> Expr:
        """The k best passages for each row: a list of `{"id": …, "score": …, "text": …}`, the best
        first, and of equal scores the lower id.

        `question` is a column of text. `by="keyword"` ranks by BM25, and finds only passages that
        share a word; `by="vector"` by the cosine; `by="hybrid"` by the sum of both scores, each
        less its mean over all passages and by its standard deviation. By default, `by` is all that
        the index has. The vector of a query is computed by the model of the passages (`embed=`), or
        is the column `vector`. `where` is a condition on the columns that the passages came with.

        >>> import silva as sv, tempfile
        >>> passages = sv.from_columns({"year": [1969, 1971], "text": ["A red fox.", "A red hen."]})
        >>> index = passages.to_index(tempfile.mkdtemp() + "/idx", keyword="text")
        >>> asked = sv.from_columns({"question": ["Which fox is red?"]})
        >>> for hit in asked.derive(hits=index.search("question", k=2)).head()[0]["hits"]:
        ...     print(hit)
        {'id': 0, 'score': 0.39794, 'text': 'A red fox.'}
        {'id': 1, 'score': 0.08287, 'text': 'A red hen.'}
        >>> later = index.search("question", where=sv.col("year") > 1970)
        >>> [hit["id"] for hit in asked.derive(hits=later).head()[0]["hits"]]
        [1]
        """
        roles = self._version.roles
        has = [name for name in ("keyword", "vector") if getattr(roles, name) is not None]
        if by is None:
            by = cast(By, "hybrid" if len(has) == 2 else has[0])
        by = one_of("search(by=…)", by, "keyword", "vector", "hybrid")
        for name in ("keyword", "vector"):
            if by in (name, "hybrid") and name not in has:
                raise PlanError(
                    f"search(by={by!r}): the index was built without {name}=, so it is searched "
                    f"by {has[0]!r} only"
                )
        model_or_none("search(embed=…)", embed)
        args: tuple[Term, ...] = ()
        if by != "vector":
            if question is None:
                raise PlanError(f"search(by={by!r}) takes a column of text: search('question', …)")
            args = (Col(column_name(question)),)
        if by != "keyword":
            args = (*args, self._query(question, vector, embed or self._embed))
        params: tuple[tuple[str, Any], ...] = (
            ("index", IndexRef(self.identity, self)),
            ("by", by),
            ("k", natural("search(k=…)", k, least=1)),
        )

        def search(where: Expr) -> Expr:
            condition = Condition(self._condition(where))
            return Expr(Call("index.search", args, (*params, ("where", condition))))

        if where is None:
            return Expr(Call("index.search", args, params))
        if not isinstance(where, Expr):
            raise PlanError(
                "search(where=…) takes a condition such as sv.col('year') > 2000, not "
                f"{shown(where)}"
            )
        return spread_expression(search, where)

    def lookup(self, ids: Iterable[Any]) -> list[dict[str, Any]]:
        """The passages with these ids as hits, in this order, with the score 1.0."""
        return self.contents().lookup(several("lookup", ids))

    def _query(self, question: str | None, vector: str | None, embed: Model | None) -> Term:
        if vector is not None:
            return Col(column_name(vector))
        if embed is None:
            raise PlanError(
                "search by vectors needs the model that made them: sv.Index(path, embed=model), or "
                "vector= with the column that holds the vector of the query"
            )
        if question is None:
            raise PlanError("search(embed=…) takes a column of text: search('question', …)")
        self._check_model(embed)
        return embed.embed(question).term

    def _check_model(self, embed: Model) -> None:
        known = self._version.roles.embed
        if known is not None and known != embed.identity:
            raise PlanError(
                f"the vectors of {self.path!r} were made by another model than {embed!r}, so its "
                "vectors cannot be compared with them: search with the same model, or build the "
                "index again"
            )

    def _condition(self, where: Expr) -> Term:
        roles = self._version.roles
        there = self.contents().rows.schema.names
        for name in columns_read(where.term):
            if name not in there:
                told = " is the vector, which" if name == roles.vector else ""
                raise PlanError(
                    f"search(where=…): {name!r}{told} is no column to filter by; there are "
                    f"{', '.join(there)}"
                )
        for part in walk(where.term):
            if isinstance(part, RowId) or (isinstance(part, Call) and operator(part.op).random):
                raise PlanError("search(where=…) is about the columns of passages only")
        return where.term

    # Versions.

    def refresh(self) -> Index:
        """The index with its last version."""
        return Index(self.path, embed=self._embed)

    def versions(self) -> list[IndexVersion]:
        """The versions that there are, the first one first."""
        folder = IndexFolder(self.path)
        found = [folder.version(number) for number in folder.numbers()]
        return [
            IndexVersion(v.number, datetime.fromtimestamp(v.time, UTC), v.what, v.rows)
            for v in found
        ]

    def add(self, pipeline: Pipeline, **arguments: Unpack[WriteArguments]) -> Index:
        """Adds the rows of a pipeline to the last version; returns the index with them. A row
        whose id is there already replaces that one. The pipeline has the columns that the index
        was built of."""
        if not isinstance(pipeline, Pipeline):
            raise PlanError(f"add takes a pipeline, not {pipeline!r:.80}")
        roles = self._version.roles
        needed = [roles.text, roles.keyword, roles.vector, None if roles.numbered else roles.id]
        _check_columns("add", pipeline.plan, [name for name in needed if name is not None])
        model = None if roles.vector is None else embedding_of(pipeline.plan, roles.vector)
        if model is not None:
            self._check_model(model)
        build.add(pipeline.plan, IndexFolder(self.path), arguments)
        return self.refresh()

    def delete(self, ids: Iterable[Any]) -> Index:
        """Removes passages by their ids; returns the index without them."""
        build.delete(IndexFolder(self.path), several("delete", ids))
        return self.refresh()

    def gc(self, *, versions: int = 1) -> int:
        """Removes all versions but the last ones, and what killed builds have left; returns the
        bytes. A build that is under way keeps its shards."""
        keep = natural("gc(versions=…)", versions, least=1)
        folder = IndexFolder(self.path)
        with hold_table(folder.path):
            return folder.remove_unnamed(folder.numbers()[-keep:])


@tagged("Index", "identity -")
@dataclass(frozen=True, eq=False)
class IndexRef:
    """An index as a parameter of an operator: compared and fingerprinted by its identity."""

    identity: str
    index: Index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexRef) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return repr(self.index)


@tagged("Condition", "term")
@dataclass(frozen=True)
class Condition:
    """A condition on the passages, as a parameter of an operator."""

    term: Term

    def __repr__(self) -> str:
        return show_term(self.term)


def build_index(
    plan: Node,
    path: str | Path,
    *,
    keyword: str | None,
    vector: str | None,
    id: str | None,
    text: str | None,
    embed: Model | None,
    recall: float | None,
    arguments: WriteArguments,
) -> Index:
    """What `pipeline.to_index` does."""
    if keyword is None and vector is None:
        raise PlanError('to_index needs keyword="…", vector="…" or both: what is searched')
    for name, given in (("keyword", keyword), ("vector", vector), ("id", id), ("text", text)):
        if given is not None:
            name_of(f"to_index({name}=…)", given)
    there = columns(plan)
    _check_columns("to_index", plan, [n for n in (keyword, vector, id, text) if n is not None])
    model_or_none("to_index(embed=…)", embed)
    if recall is not None:
        if vector is None:
            raise PlanError("to_index(recall=…) is about vectors: give vector= too")
        share("to_index(recall=…)", recall)
    if vector is not None and embed is None:
        embed = embedding_of(plan, vector)
    if text is None:
        text = keyword if keyword is not None else "text" if "text" in there else None
    numbered = id is None and _NUMBERS not in there
    roles = Roles(
        _NUMBERS if id is None else id, text, keyword, vector, numbered,
        None if embed is None else embed.identity, recall,
    )  # fmt: skip
    build.build(plan, path, roles, arguments)
    return Index(path, embed=embed)


def embedding_of(plan: Node, vector: str) -> Model | None:
    """The model whose embedding the column `vector` is, where the plan says so."""
    node = plan
    while vector not in node.writes and isinstance(node, OneInput):
        node = node.input
    if isinstance(node, Derive) and isinstance(node.step, Call) and node.step.op == "model.embed":
        ref = dict(node.step.params)["model"]
        return ref.model if isinstance(ref, ModelRef) else None
    return None


def _check_columns(verb: str, plan: Node, names: Sequence[str]) -> None:
    there = columns(plan)
    for name in names:
        if column_name(name) not in there:
            raise PlanError(f"{verb}: there is no column {name!r}; there are {', '.join(there)}")
