"""Rows that are kept, so that they are computed once: in memory, in files, in an object store.

A cache keeps, for each input row of a stage, all rows that came of it (`entries`), by the identity
of the input row. `row_store` keeps them in memory, `file_store` in files on a *shelf*: a folder of
a disk or a prefix of an object store, behind one interface (`shelf`). `row_files` is the format,
`file_writer` gathers new rows into files, `shelf_index` lists them, `eviction` makes room.
`open_store` decides which store a cache gets: files only where a later run can tell whether the
rows are still its own.
"""
