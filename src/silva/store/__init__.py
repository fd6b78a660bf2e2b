"""Tables: versions, derived columns, deduplication.

A table is a folder of files that are written once. `manifest` is what a version is, as plain data;
`folder` reads it, `commits` makes the next one appear, `garbage` removes what none names. `append`
and `ingest` turn rows into fragments, `rows` keeps them in files: numbers in `pages`, others in
Lance's `files`. `definitions` are derived columns, `logical` makes a pipeline of them,
`materialize` stores them, `choose` says which; `put` stores values that are given. `source` reads a
version, `table` is the face of it all, `sink` writes pipelines into it.
"""
