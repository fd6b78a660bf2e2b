"""What `sv.num` and `sv.list` share: the same operators on numbers and on the items of lists.

`arguments` and `table` check and hold what people write. `items` runs a kernel over a flat column
of any kind, `ragged` over the lists of a column, and `hashing` is the kernel of `hash`. `declare`
registers a kernel for both kinds. The laws of the two kinds are in `num_laws` and `list_laws`.
"""
