"""Files of a table: written once, checked when read, read by position.

`part_files` holds the columns of a fragment: numbers in `pages`, others in Lance files. `dedup`
chooses how a column is stored; `slices` stores lists that share their items.
"""
