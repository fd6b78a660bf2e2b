"""Pipelines written to storage: shards of bounded size, complete or not there.

`write` reads a pipeline chunk by chunk and hands the chunks to a `Writer`, which makes one shard at
a time. When a shard is closed, its name and the loader's state after its last row are kept together
in one file that appears at once (`progress`). Whoever comes after a kill goes on from there: what
was begun is thrown away, what is listed stays, and no row is lost or written twice.
A format (`parquet`, `tar`) is a `Writer`: how chunks become bytes, and nothing else.
"""
