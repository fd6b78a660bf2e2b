"""Joins: `build` makes plan nodes of them, `latest` looks up the latest features of given keys,
`leaks` looks for columns that depend on the future.

The other side is read into memory once and looked up by whole columns (`operators/join`), so the
rows of the left side stay in their order and keep their identity: a join is one row to one row.
"""
