"""The data itself: columns of each kind, and blocks of them.

A block is a contiguous run of rows in logical order, held as columns. A column is one of
`Array` (fixed shape), `Lists` (values + offsets), `Strings` (Arrow text or bytes), `Values`
(a Python list: what a per-row function returned, images of many sizes, anything), `Grouped`
(unique values + inverse index), and `Parts` (several columns as one, within a step). All answer
`take, slice, rows, batch`; `concat` and `settle` build them. The type of a batch depends on the
rows of that batch alone, never on where blocks begin: see `settle`.
"""

from silva.columns.array import Array
from silva.columns.arrow import from_arrow, table_columns, to_arrow
from silva.columns.bed import empty_rows
from silva.columns.block import Block
from silva.columns.column import Column
from silva.columns.concat import concat
from silva.columns.grouped import Grouped
from silva.columns.lists import Lists
from silva.columns.parts import Parts
from silva.columns.ragged import Ragged
from silva.columns.recycle import empty
from silva.columns.settle import settle
from silva.columns.strings import Strings
from silva.columns.values import Values

__all__ = [
    "Array",
    "Block",
    "Column",
    "Grouped",
    "Lists",
    "Parts",
    "Ragged",
    "Strings",
    "Values",
    "concat",
    "empty",
    "empty_rows",
    "from_arrow",
    "settle",
    "table_columns",
    "to_arrow",
]
