"""Which row comes when: a pure function of (pipeline, seed, epoch, position).

`draws` gives every row its random numbers, keyed by (seed, epoch, row identity, step), never by a
worker. `positions` maps places in the order to rows of an indexed source (a permutation computed
on the fly, a range, a weighted draw); `shards` cuts an order into equal parts; `mixing` decides
which pipeline gives the next row and `packing` which sequences share a line. `cursors` declares the
form of each node's cursor, `forms` finds the form of a plan, `state` checks states, `reshard` deals
them out to other shards. Nothing here reads data.
"""
