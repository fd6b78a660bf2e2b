"""How good a pipeline of models is, what limits it, and which of its choices are best.

`evaluate` runs rows with known answers and gives each metric with an interval (`evaluation.py`,
`metrics.py`). `choices.py` finds the configurations of a pipeline; `tune.py` races them and shows
which trade-offs are left. `bounds.py` holds the statistics that promises rest on.
"""
