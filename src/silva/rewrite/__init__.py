"""Rewrites the plan as written into the plan as run, by rules that keep the stream.

One rule is one file in `rules/`. A rule takes a plan and returns a `Rewrite` of it (`rule`).
`runner` is the only place where rules run: if a rule is enabled, it applies it, verifies the plan,
and records an `Outcome`, which `explain()` prints.
"""
