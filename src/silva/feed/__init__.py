"""Batches in the form that a trainer wants: torch tensors, jax arrays, Arrow record batches.

A feed wraps a loader and converts what it yields, without a copy where the layouts agree. It holds
no position of its own: state, epochs and length are the loader's. Libraries are imported when used.
"""
