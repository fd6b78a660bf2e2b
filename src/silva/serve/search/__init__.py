"""How good a pipeline of models is, what limits it, and which of its choices are best.

`evaluate` runs rows with known answers and gives a metric with an interval (`evaluation.py`,
`metrics.py`, `intervals.py`). `tune` searches choices: configurations share what they compute alike
(`sharing.py`), are measured in a `contest.py`, race (`racing.py`) by evidence on the rows that two
of them have answered (`paired.py`), and end as a front (`tuned.py`, `plot.py`). `what_if.py` says
which step to work on next: `interventions.py` puts `gold.py`'s values in the place of what steps
give, `recording.py` times and replays them. `calibration.py` finds the threshold of a cascade;
`bounds.py` holds the statistics it rests on.
"""
