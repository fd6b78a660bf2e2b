"""Sources: where rows come from.

A source is frozen, cheap to make and picklable; it lists and opens files only when asked. It is
*indexed* (any row costs the same: files, arrays) or *chunked* (rows come in units that are read
from their start: row groups, byte ranges, tar files, streams). Which of the two it is decides how
it can be shuffled and split among shards; see `source`.
"""
