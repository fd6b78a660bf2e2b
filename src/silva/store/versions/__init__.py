"""Versions of a table: manifests that name files, and the commits that add them.

`manifest` is what a version is, as plain data; `sealed` is its file format; `table_folder` finds
and reads it, `commits` adds the next one or nothing, under `locks`. `audit` notes who reads which
columns.
"""
