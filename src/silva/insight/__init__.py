"""What silva knows about a run, for people: counters, explanations, a live line, one HTML page.

`stats` and `steps` read the counters of the stages; `explain` and `nodes` turn plans and counters
into text; `watch` counts a loop and `progress` shows it; `report` and `html` make the page.
Nothing here changes how a pipeline runs.
"""
