"""Models that read a text and give numbers: embeddings, and cross-encoders that score pairs.

`embedding.py` and `cross_encoder.py` are the values that say which model. `layout.py` finds the
files of a folder that Hugging Face lays out; `onnx.py` runs their graph in this process.
"""
