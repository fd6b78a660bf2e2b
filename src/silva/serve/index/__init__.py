"""Indices: passages that are searched by their words, by their vectors, or by both.

`pipeline.to_index(path)` streams a pipeline into Parquet shards, from which a killed build goes on
(`build.py`), and makes a version of them: rows sorted by id, BM25 (`keyword.py`), unit vectors
(`vectors.py`), and, where a recall floor is asked for, a graph (`graph.py`). A version is one file
that is written last, and names its parts by their contents (`version.py`). `sv.Index(path)` is a
value (`index.py`); the process that runs a search opens it once (`opened.py`, `contents.py`).
"""
