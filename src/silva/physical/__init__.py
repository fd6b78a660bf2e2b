"""How a plan runs: stages, and the tree that connects them.

A `Stage` is a fused chain of row steps, `stage(block, context) -> block`: serialisable, with no
queue or loader in it. `plan` holds the physical nodes: feeds that say which rows come next,
segments that map blocks through a stage anywhere, and the sequential nodes (batch, mix, take, …)
that see rows in order and run beside the consumer. `lower` is the table from logical nodes to
these.
"""
