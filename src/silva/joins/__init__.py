"""Joins: `build` writes them as derivations of a plan, `latest` answers the same question for keys
of the moment, `leaks` looks for rows that see the future.

The other side is read into memory once and looked up by whole columns (`operators/_join`), so the
rows of the left side stay in their order and keep their identity: a join is one row to one row.
"""
