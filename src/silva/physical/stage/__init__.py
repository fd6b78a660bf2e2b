"""All that is sent to a worker: a stage, its steps, and how they call the user's functions.

A `Stage` is a fused chain of `steps` that turns a block, or rows that it reads itself (`places`,
`units`), into a block. `call` runs a user's function on the rows of a block: fast if no row
fails, row by row if one does (`raised`). `evaluate` runs expressions. The checks of functions
(`changed_inputs`, `neighbours`, `global_generators`) run here too, on the user's own rows.
"""
