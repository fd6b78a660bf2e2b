"""What the planner promises, measured: `python -m benchmarks.planner`.

Each claim is a function here; what it compares runs in new processes that take turns, so that a
busy minute of the machine falls on all of them.
"""
