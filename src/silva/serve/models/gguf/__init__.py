"""Models in GGUF files, run by llama.cpp in a process of their own.

`gguf.py` is the value that says which file, and how it is run. An open model starts a child and
asks it over loopback (`child.py`); the child runs llama.cpp's server (`process.py`). A child that
ends is replaced.
"""
