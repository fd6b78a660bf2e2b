"""The data itself: columns of each kind, and blocks of them.

A block is a contiguous run of rows in logical order, held as columns. A column is one of
`Array` (fixed shape), `Lists` (values + offsets), `Strings` (Arrow text or bytes), `Values`
(a Python list: what a per-row function returned, images of many sizes, anything), `Dictionary`
(distinct values + an index), `Union` (rows of several types, a column for each), and `Parts`
(several columns as one, within a step). All answer `take, slice, rows, batch`; `concat` and
`settle` build them; `serial/` turns them into bytes. The type of a batch depends on the rows of
that batch alone, never on where blocks begin: see `settle`.
"""

from silva.columns.allocation import empty, empty_rows
from silva.columns.arrow_arrays import from_arrow, table_columns, to_arrow
from silva.columns.block import Block, concat
from silva.columns.column import Array, Column, Constant, Parts, Strings
from silva.columns.dictionary import Dictionary
from silva.columns.lists import Lists
from silva.columns.ragged import Ragged
from silva.columns.union import Union
from silva.columns.values import Values, settle

__all__ = [
    "Array",
    "Block",
    "Column",
    "Constant",
    "Dictionary",
    "Lists",
    "Parts",
    "Ragged",
    "Strings",
    "Union",
    "Values",
    "concat",
    "empty",
    "empty_rows",
    "from_arrow",
    "settle",
    "table_columns",
    "to_arrow",
]
