"""What `sv.num` and `sv.list` share: the same operators on numbers, and on the items of lists.

`arguments` and `table` check and hold what people write. `items` runs a kernel over a flat column
of any kind, `ragged` over the lists of a column; `numbers`, `hashing` and `lists` are the kernels.
"""
