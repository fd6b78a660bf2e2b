"""`silva demo`: a small training job that shows what silva does, in about half a minute.

`photos` makes a dataset from scikit-learn's two sample photographs, `pipelines` and `model` hold
what a user would write, and `story` runs it and prints each step.
"""

from silva.demo.story import run_demo

__all__ = ["run_demo"]
