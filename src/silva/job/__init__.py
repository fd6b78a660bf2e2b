"""Data, model and machines as one thing: a job that is planned, run, saved and resumed.

A `Job` has a pipeline, a module and a loss. `readers` gives each rank its rows, once for each group
of ranks that read the same; `run` takes the steps; `saving` writes data state, model and optimiser
as one checkpoint and finds the last one; `launching` starts the ranks on a cluster; `facts` is what
a run has measured, and its text.
"""

from silva.job.job import Job

__all__ = ["Job"]
