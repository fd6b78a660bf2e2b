"""How good a pipeline of models is, what limits it, and which of its choices are best.

`evaluate` runs rows with known answers (`rows.py`) and gives a metric with an interval
(`evaluation.py`, `metrics.py`, `intervals.py`). `tuning/` searches choices, and `attribution/` says
which step to work on next. `calibration.py` finds the threshold of a cascade; `bounds.py` holds the
statistics that it rests on.
"""
