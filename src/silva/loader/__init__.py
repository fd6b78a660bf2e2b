"""A pipeline being read, epoch after epoch, from any state, by one rank.

`Loader` is the face: what a user iterates, saves, explains and converts. `epochs` reads: it opens a
stream for each epoch, changes the plan between batches, begins the next epoch early, and keeps
ranks in step. `forecasts` runs a few rows to say how fast the run will be. `position` turns a place
in the stream into a state and back. `whole_columns` reads columns that a plan needs before its
first row.
"""

from silva.loader.loader import Loader
from silva.loader.whole_columns import read_columns

__all__ = ["Loader", "read_columns"]
