"""Versions of a table: manifests that name files, and the commits that add them.

`manifest` and `layout` are what a version is, as plain data; `sealed` is its file format;
`table_folder` reads it, `commits` adds the next one or nothing, under `locks`. `find` looks up the
version that people mean, `audit` notes who reads which columns.
"""
