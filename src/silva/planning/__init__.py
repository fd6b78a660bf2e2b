"""Choosing the plan while it runs: what was measured, what the search makes of it, and the check of
rewrites on real rows. The loader asks at the border of a batch whether there is a better plan."""
