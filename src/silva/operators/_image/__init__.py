"""The kernels behind `silva.operators.image`.

`rows` runs a kernel over a column, `header` reads sizes without decoding, `decode` makes pixels of
bytes, `geometry` moves pixels, `pixels` changes their values.
"""
