"""`silva demo`: a small training job that shows what silva does, in about half a minute.

`photos` makes a data set from scikit-learn's two sample photographs; `pipelines` says what happens
to each photo; `model` is the network; `story` tells the whole, on the terminal.
"""

from silva.demo.story import run_demo

__all__ = ["run_demo"]
