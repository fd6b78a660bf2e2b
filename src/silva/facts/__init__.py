"""What a plan or a run is and did: one read-only model, and its text.

`model` holds the facts as frozen data. `collect` is the only place that reads them from a planner
and an executor. `plans` describes plans, `text` prints explanations, `why` prints what concerns one
name, and `formatting` prints numbers with their units. Nothing here changes how a pipeline runs.
"""
