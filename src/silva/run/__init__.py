"""The streaming executor: blocks in logical order, bounded in bytes, on any backend.

A *flow* (`flows/`) gives pieces (a block and the trail that leads back to it) of one shard in
order; flows pull from each other on the consumer's thread. Only segments run elsewhere: the
`Executor` keeps a window of tasks in flight in a *pool* (inline, `threads`, `processes`, `ray`)
and hands results back in order. State is asked of a trail after the fact, so prefetching never
shows in it.
"""
