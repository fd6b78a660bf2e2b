"""Sources: where rows come from.

A source is frozen, cheap to make and picklable; it lists and opens files on first use. It is
*indexed* (any row costs the same to read: files, arrays) or *chunked* (rows come in units that are
read from their start: row groups, byte ranges, tar files, streams). The kind decides how its rows
can be shuffled and split among shards. `source` declares sources, and `file_source` is what all
file formats share.
"""
