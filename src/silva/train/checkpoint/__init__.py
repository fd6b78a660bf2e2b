"""Checkpoints of a training job: safetensors files and a strict JSON manifest.

A tensor is stored in *boxes*, parts of the whole tensor with their place in it, under the name that
it has in the unmodified module. So what was written by one plan is read by any other: a rank looks
for the boxes that its own parts overlap. `boxes` knows which these are, `manifest` is the form of
the file that makes a checkpoint count, `write` and `read` do the rest. Nothing is unpickled.
"""
