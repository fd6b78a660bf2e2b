"""Decoding less than a whole image: `partial` decodes only the rows that a crop looks at, `shrink`
decodes at a smaller scale where the next operator shrinks anyway."""
