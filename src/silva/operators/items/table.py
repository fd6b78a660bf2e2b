"""A table of vectors as the parameter of an operator: compared and fingerprinted by its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.class_tags import tagged


@tagged("Table", "shape dtype content")
@dataclass(frozen=True, repr=False)
class Table:
    """The content is hashed once, when the table is given; plans then carry the hash about.

    The vectors are no field: a field would be hashed for each fingerprint, and compared.
    """

    shape: tuple[int, int]
    dtype: str
    content: str

    @property
    def vectors(self) -> np.ndarray:
        """(rows, dimensions), contiguous and read-only."""
        array: np.ndarray = self.__dict__["vectors_"]
        return array

    def __repr__(self) -> str:
        return f"table of {self.shape[0]} × {self.shape[1]} {self.dtype}"


def read_table(value: Any) -> Table:
    """A numpy array or a torch tensor as a table. It is not copied, so it must not change."""
    if type(value).__module__.partition(".")[0] == "torch":
        value = value.detach().cpu()
        try:
            value = value.numpy()
        except TypeError:  # e.g. bfloat16
            raise PlanError(f"numpy has no {value.dtype}: give embed(table.float())") from None
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "fiu":
        what = f"{value.dtype} of shape {value.shape}" if hasattr(value, "shape") else repr(value)
        raise PlanError(f"a table is an array of numbers (ids, dimensions), not {what:.60}")
    if not all(value.shape):
        raise PlanError(f"a table of {value.shape[0]} × {value.shape[1]} holds nothing")
    vectors = np.ascontiguousarray(value, value.dtype.newbyteorder("=")).view()
    vectors.flags.writeable = False
    content = hashlib.blake2b(vectors.data, digest_size=16).hexdigest()
    table = Table((value.shape[0], value.shape[1]), vectors.dtype.name, content)
    table.__dict__["vectors_"] = vectors
    return table
