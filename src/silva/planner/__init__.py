"""Chooses the plan of a loader, and changes it while it runs.

`planner` holds the plan of a loader: it applies the rewrite rules and, between two batches, changes
to a better plan if there is one. `known_costs` joins the costs that this run and earlier ones
measured, and `earlier_runs` adds them up for a run that has not begun; `candidates` lists what can
be moved or cached in a run of steps (`movable_runs`); `search` finds the best order and the best
place for a cache; `choose` turns that into a plan. Rewrites that depend on numbers are compared
with the plan as written, on real rows, before they are used (`self_check`).
"""
