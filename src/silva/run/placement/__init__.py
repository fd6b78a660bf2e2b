"""Which backend a stage runs on, and with how many workers.

A `lane` is one stage as it runs now: what its rows cost, and its backend, which it compares with
others by an experiment (`cost/experiment.py`). `offload` proposes the cluster; `sizing` controls
the number of workers and the size of blocks; `measured` keeps the counters, and predictions beside
what was then measured.
"""
