"""Laws of image operators: `close` ones, tempting ones that `never` hold, and `exact` ones.

Importing this package registers them in that order, in which plans try them. `known` says what a
plan knows of an image before it exists.
"""

from silva.operators.image.laws import close, never

from silva.operators.image.laws import exact  # isort: skip

__all__ = ["close", "exact", "never"]
