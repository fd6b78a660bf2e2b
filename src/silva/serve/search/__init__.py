"""How good a pipeline of models is, what limits it, and which of its choices are best.

`evaluate` runs rows with known answers and gives each metric with an interval (`evaluation.py`,
`metrics.py`). `choices.py` finds the configurations of a pipeline; `tune.py` races them and shows
which trade-offs are left. `what_if.py` says which step to work on next: `interventions.py` puts
`gold.py`'s values in the place of what steps give, `recording.py` times and replays them.
`calibration.py` finds the threshold of a cascade; `bounds.py` holds the statistics it rests on.
"""
