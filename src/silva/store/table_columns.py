"""The handle of a table, with its methods for derived and given columns."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, Self

from silva.cost.machine import parse_bytes
from silva.errors import PlanError, TableError
from silva.joins.latest import Latest
from silva.plan.function import Step
from silva.plan.node import Derive
from silva.store.derived.advice import advise
from silva.store.derived.definitions import check_derived, current
from silva.store.derived.materialize import drop_parts, made_together, store_columns
from silva.store.derived.put import put_column
from silva.store.logical import add_columns, add_wishes, derives
from silva.store.versions import commits
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder, Which, find_version


class TableColumns:
    """A branch of a table or one version of it, and its columns; `Table` adds the rows."""

    def __init__(
        self,
        folder: Folder,
        branch: str = "",
        pinned: Version | None = None,
        steps: dict[str, Step] | None = None,
    ) -> None:
        if not isinstance(folder, Folder):
            raise TableError(
                f"a table is opened by its path: write sv.Table.open({folder!r:.80}), or "
                "sv.Table.create(path, data) for a new one"
            )
        self._folder = folder
        self._branch = branch
        self._pinned = pinned
        self._steps: dict[str, Step] = {} if steps is None else steps
        """The functions of derived columns that this program has, by fingerprint."""
        self._latest: tuple[Any, Latest] | None = None
        """The arguments and the index of the last call of `Table.latest`."""

    @property
    def version(self) -> Version:
        """This version; for a branch, the last one."""
        return self._pinned or self._folder.head(self._branch)

    @property
    def path(self) -> str:
        return str(self._folder.path)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(current(self._folder, self.version))

    def _writable(self) -> Version:
        if self._pinned is not None:
            raise TableError(
                f"version {self._pinned.number} of {self.path!r} cannot be changed: "
                f"restore({self._pinned.number}) makes it the newest, branch(name) starts a branch"
            )
        return self._folder.head(self._branch)

    def _commit(self, change: commits.Change) -> Version:
        return commits.commit(self._folder, self._branch, change)

    def derive(
        self,
        function: Any = None,
        /,
        *,
        into: str | Sequence[str] | None = None,
        reads: str | Sequence[str] | None = None,
        **steps: Any,
    ) -> Self:
        """Adds columns that are computed from others: definitions, no data. `into` names several
        columns of one function, `reads` the columns that it reads, as in `Pipeline.derive`.

        A function itself is not stored: programs that read the column derive it again, which
        changes nothing as long as the function is the same.

        >>> import silva as sv, pyarrow as pa, tempfile
        >>> t = sv.Table.create(tempfile.mkdtemp() + "/t", pa.table({"dwell": [40, 5]}))
        >>> t.derive(clicked=lambda dwell: dwell > 30).read().head(1)
        [{'dwell': 40, 'clicked': True}]
        >>> t.derive(lambda dwell: divmod(dwell, 60), into=("minutes", "rest")).columns
        ('dwell', 'clicked', 'minutes', 'rest')
        """
        self._writable()

        def derived(columns: Sequence[str]) -> list[Derive]:
            return derives(columns, function, into=into, reads=reads, **steps)

        derived(self.columns)  # raises for mistakes before the table is held
        self._commit(functools.partial(add_columns, self._folder, derived, self._steps))
        return self

    def materialize(self, *names: str, on_error: Literal["raise", "skip"] = "raise") -> Self:
        """Stores derived columns, so that reading them computes nothing; fragments that have them
        already are skipped. Rows that are appended later are computed until this is called again.

        A row on which a definition fails is an error; with `on_error="skip"`, its fragment stays
        computed on read, where the loader's own policy decides.
        """
        head = self._writable()
        for name in names:
            check_derived(self._folder, head, name)
        for some in made_together(self._folder, head, names):
            store_columns(self._folder, self._branch, some, self._steps, on_error)
        return self

    def unstore(self, *names: str) -> Self:
        """Drops stored derived columns, which are then computed on read; older versions keep
        theirs."""
        self._writable()
        for name in names:
            self._commit(functools.partial(drop_parts, self._folder, name))
        return self

    def put(
        self,
        name: str,
        values: Any,
        *,
        keys: Any = None,
        at: Which | None = None,
        default: Any = None,
    ) -> Self:
        """Stores values from outside, such as a model's losses or embeddings, as a column without a
        function. A value is whatever a column can hold.

        Give one value for each row, in the order of `read`; or with `keys`, one for each key (for
        several key columns, a dict of columns): the rows of other keys keep the values that they
        have. `at` is the version that was read, in case the table has changed since. Rows without a
        value, and those appended later, have `default`. Putting the column again adds a version;
        older ones keep their values, and equal values change nothing.

        >>> import silva as sv, pyarrow as pa, tempfile
        >>> rows = pa.table({"event": [1, 2, 3]})
        >>> t = sv.Table.create(tempfile.mkdtemp() + "/t", rows, key="event")
        >>> first = t.put("score", [0.5, 0.1], keys=[3, 1], default=0.0).version.number
        >>> t.put("score", [9.0, 9.0, 9.0]).at(first).read().head(3)[1:]
        [{'event': 2, 'score': 0.0}, {'event': 3, 'score': 0.5}]
        >>> t.put("score", [1.0], keys=[2]).read().head(3)[1:]
        [{'event': 2, 'score': 1.0}, {'event': 3, 'score': 9.0}]
        """
        head = self._writable()
        version = head if at is None else find_version(self._folder, head, at)
        put_column(self._folder, self._branch, version, name, values, keys, default)
        return self

    def expect(self, **reads: float) -> Self:
        """Announces how often columns will be read as a whole: `expect(clicked=20)` for twenty
        epochs. Reads in the audit log count as well, and less as they grow older."""
        for name, count in reads.items():
            if isinstance(count, bool) or not isinstance(count, int | float) or count < 0:
                raise PlanError(f"expect({name}=…) takes a number of reads, not {count!r}")
        self._wish({name: {"reads": float(count)} for name, count in reads.items()})
        return self

    def pin(self, **pins: Literal["always", "never"] | None) -> Self:
        """Makes `optimize` store columns `"always"` or `"never"`; None lets it choose."""
        for name, pin in pins.items():
            if pin not in ("always", "never", None):
                raise PlanError(f"pin({name}=…) takes 'always', 'never' or None, not {pin!r}")
        self._wish({name: {"pin": pin} for name, pin in pins.items()})
        return self

    def _wish(self, wishes: dict[str, dict[str, Any]]) -> None:
        self._writable()
        self._commit(functools.partial(add_wishes, self._folder, wishes))

    def optimize(self, budget: int | str | None = None) -> Self:
        """Stores the derived columns that are worth it and drops those that are not, by the cost of
        some of their rows and how often they are read. All stored columns together take at most
        `budget` bytes. `explain` shows what it would do, and why."""
        room = None if budget is None else parse_bytes(budget)
        for advice in advise(self._folder, self._writable(), self._steps, room):
            if advice.decision.store:
                self.materialize(advice.candidate.name)
            elif advice.candidate.stored:
                self.unstore(advice.candidate.name)
        return self
