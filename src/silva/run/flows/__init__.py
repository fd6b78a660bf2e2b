"""Flows: the physical plan opened at a state. One class a physical node; each gives pieces in
order.

A piece is a block and its trail. `trail.after(k)` is the state from which the rows after row `k`
follow, so any row of any block can be resumed from, whatever was prefetched. `fetch(marks)` reads
single rows again by their mark: what a bucket needs to restore rows that were waiting.
"""
