"""Batches as torch tensors, jax arrays or Arrow record batches.

A feed wraps a loader and converts each batch, without a copy where the memory layouts agree. It has
no position of its own: state, epochs and length are the loader's. `ranks` finds out which rank of a
distributed job this process is. Libraries are imported at their first use.
"""
