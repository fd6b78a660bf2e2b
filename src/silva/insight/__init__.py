"""What silva knows about a run, for people: counters, explanations, a live line, one HTML page.

`stages`, `overall` and `decisions` gather what was measured and decided as plain data; `explain`,
`explain_html` and `explanation` show it. `why` tells it of one name, `what_if` asks the cost model
with other numbers, `headroom` runs each step alone on blocks that `replay` kept. `watch` counts a
loop and `progress` shows it; `report` and `html` make the page. Nothing here changes how a pipeline
runs.
"""
