"""Flows: the physical plan opened at a state. Each physical node has one class.

A flow of rows is opened for a shard and yields *trailed blocks* in order: a block and its trail.
`trail.after(k)` is the position from which the rows after row `k` follow, so the stream can resume
after any row, whatever was prefetched. `fetch(marks)` reads single rows again, which a bucket needs
to restore rows that were waiting. A flow of batches is opened for a rank and yields the
batches of one block at a time (`batch`).
"""
