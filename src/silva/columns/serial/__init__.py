"""Columns, batches and Python values as bytes and back. Nothing is pickled, nothing is trusted.

`column_codec` writes the pages of a cache, `batch_codec` the batches of a service. Both put raw
buffers behind a table of contents (`buffers`); `python_values` is the msgpack of Python values.
`checks` is the one place that decides what bytes must satisfy before they become arrays.
"""
