"""Datasets of other libraries: PyTorch and Hugging Face."""
