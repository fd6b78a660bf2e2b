"""Tables: versions, derived columns, deduplication.

A table is a folder of files that are written once. `versions/` holds what a version is, reads it,
and commits the next one; `garbage` removes files that no version names. `append/` turns rows into
fragments, and `files/` keeps their columns in files. `derived/` holds columns that are computed:
their definitions, where they are stored, and which are worth storing. `logical` makes a pipeline of
a version, `table` is the public class, `describe` explains it, `sink` writes pipelines into it.
"""
