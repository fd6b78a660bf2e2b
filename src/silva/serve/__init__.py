"""Pipelines that answer requests: models, indices and tools as steps.

A model, an index or a remote endpoint is an operator like any other: `models/` and `index/` build
expressions of them, so rewrites, caches and failures need no second engine. What such a step
answered is kept by its content (`models/answers.py`), within a process and on disk. `engine/` runs
the same pipeline for requests as they come, and `http/` is the server around it.
"""

from silva.serve import models

__all__ = ["models"]
