"""Facts beyond text: explanations as pages and data, headroom, what-if, the live line, the report.

Everything here reads `RunFacts` and changes nothing. `explanation` is what `explain()` returns.
`pages` renders facts for browsers and notebooks, from the pieces in `html`. `headroom` runs each
step alone on inputs that `replay` kept, `what_if` asks the cost model with other numbers,
`forecast` asks it before a run, and `progress` shows a loop while it runs.
"""
