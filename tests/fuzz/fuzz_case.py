"""A case: a pipeline as source code, and what its loaders are told.

What is drawn is a program: it is shown, can be pasted, and is made smaller when it fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import fuzz_words

import silva as sv

NAMES = {name: getattr(fuzz_words, name) for name in fuzz_words.__all__}


@dataclass(frozen=True)
class Tree:
    """A pipeline as source code."""

    begin: str | tuple[Tree, ...]
    """A source, or the pipelines that `combine` makes one of."""
    combine: str = ""
    """`sv.mix({}, seed=1)`, with a place for the list of pipelines."""
    verbs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self._told(0)

    def _told(self, depth: int) -> str:
        space = "    " * (depth + 1)
        if isinstance(self.begin, str):
            begin = self.begin
        else:
            parts = "".join(f"{space}    {tree._told(depth + 1)},\n" for tree in self.begin)
            begin = self.combine.format(f"[\n{parts}{space}]")
        return begin + "".join(f"\n{space}{verb}" for verb in self.verbs)

    def build(self) -> sv.Pipeline:
        made = eval(f"(\n{self.text}\n)", dict(NAMES))  # noqa: S307  a program that we wrote
        assert isinstance(made, sv.Pipeline)
        return made

    def smaller(self) -> list[Tree]:
        """Trees with something left out, the largest pieces first."""
        found: list[Tree] = []
        if not isinstance(self.begin, str):
            found += [replace(tree, verbs=(*tree.verbs, *self.verbs)) for tree in self.begin]
            if len(self.begin) > 2:
                found += [
                    replace(self, begin=(*self.begin[:i], *self.begin[i + 1 :]))
                    for i in range(len(self.begin))
                ]
        found += [
            replace(self, verbs=(*self.verbs[:i], *self.verbs[i + 1 :]))
            for i in range(len(self.verbs))
        ]
        if not isinstance(self.begin, str):
            for i, tree in enumerate(self.begin):
                found += [
                    replace(self, begin=(*self.begin[:i], less, *self.begin[i + 1 :]))
                    for less in tree.smaller()
                ]
        return found


@dataclass
class Case:
    """What one seed means: a pipeline, and what its loaders are told."""

    seed: int
    tree: Tree
    policy: str = "'raise'"
    """The source of `on_error=`."""
    loader_seed: int = 0
    shards: int | None = None
    refused: bool = False
    """A function in it must be refused by every backend."""
    traits: frozenset[str] = frozenset()
    """What it holds: "fails", "random", "global", …"""

    @property
    def text(self) -> str:
        told = f"pipeline = (\n    {self.tree.text}\n)"
        if self.shards is not None:
            told += f".options(shards={self.shards})"
        told += f"\non_error, seed = {self.policy}, {self.loader_seed}"
        return f"from fuzz_words import *\n\n{told}"

    def build(self) -> sv.Pipeline:
        made = self.tree.build()
        return made if self.shards is None else made.options(shards=self.shards)

    @property
    def batch_size(self) -> int:
        """Of a case that ends with `batch(n)`."""
        return int(re.findall(r"\d+", self.tree.verbs[-1])[0])

    def in_rows(self, *, full: bool) -> Case:
        """The case with `drop_last=True`, or without, and lists of rows as batches; its last verb
        is `batch(n)`."""
        *before, last = self.tree.verbs
        drop = ", drop_last=True" if full else ""
        last = f"{last.replace(', drop_last=True', '')[:-1]}{drop}, collate=in_rows)"
        return replace(self, tree=replace(self.tree, verbs=(*before, last)))

    def on_error(self, policy: str | None = None) -> Any:
        return eval(policy or self.policy, dict(NAMES))  # noqa: S307  a policy that we wrote
