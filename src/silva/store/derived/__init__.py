"""Columns that are computed: definitions, where they are stored, and which are worth storing.

`definitions` are derived columns as data, `terms` their expressions as JSON. `columns` reads them
where they are stored and computes them elsewhere, `table_source` reads a version as a source.
`materialize` stores columns, `advice` measures their costs, `storage_choice` decides which are
worth it. `put` stores values that are given.
"""
