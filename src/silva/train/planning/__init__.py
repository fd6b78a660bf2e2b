"""Chooses how to train a module on a topology, and says why.

`measure` times the parts of the module here; `candidates` lists the ways to spread it, `schedule`
the order of microbatches in a pipeline, `price` runs a way in the simulator: its time, memory and
traffic. `plan` chooses the fastest that fits, if it is at least a tenth faster than the default,
and `explain` shows all of them side by side.
"""
