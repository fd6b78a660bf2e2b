"""The kernels behind `silva.operators.image`, each a `RowKernel`: what happens to one image.

`header` reads sizes without decoding, `decode` and `encode` turn bytes into pixels and back,
`moves` and `geometry` say where pixels go (and boxes and masks with them), `scene` is an image with
its boxes, `pixels` and `colour` change values, `filters` blur and erase, `shrink` decodes at a
smaller scale, `partial` only the upper rows.
"""
