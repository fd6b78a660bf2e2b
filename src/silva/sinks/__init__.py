"""Pipelines written to storage: shards of bounded size, complete or absent.

`write` reads a pipeline chunk by chunk and passes the chunks to a `ShardWriter`, which makes one
shard at a time. When a shard is closed, its name and the loader's state after its last row are
saved together in one file, which is replaced atomically (`progress`). A run after a kill continues
from there: it keeps the listed shards, deletes the unfinished one, and neither loses a row nor
writes one twice. A format (`parquet`, `tar`) is a `ShardWriter`: how chunks become bytes.
"""
