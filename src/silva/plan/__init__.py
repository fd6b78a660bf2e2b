"""The logical plan: what the job is, as data.

A plan is a tree of frozen nodes (`node`). Derive and Filter nodes hold a *step*: an expression
over columns (`expr`) or a plain Python function (`function`). Both say which columns they read, so
`traits` can say for every node what may be swapped, dropped or stored. `schema` names the columns,
`fingerprint` identifies a column's meaning across processes, `verify` checks a whole plan and
`show` prints it. Nothing here runs anything.
"""
