"""Appending rows to a table: convert them to one form, check them, write them, commit.

`normal_form` converts rows to plain Arrow columns, `ingest` sorts them and cuts them into
fragments, `data_writer` writes files that the next version names, `new_keys` finds
keys that the table has already. `append` puts these together.
"""
