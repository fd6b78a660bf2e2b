"""The streaming executor: blocks in logical order, bounded in bytes, on any backend.

A *flow* (`flows/`) yields the blocks of one shard in order, each with its trail, which knows the
state after any of its rows. Flows pull from each other on the consumer's thread. Only segments run
elsewhere: the `Executor` keeps tasks in flight in a *pool* (inline, `threads`, `processes`, `ray`)
and hands results back in order. State is asked of a trail after the fact, so prefetching never
shows in it.
"""
