"""The logical plan: what the job is, as data.

A plan is a tree of frozen nodes (`node`). Derive and Filter nodes hold a *step*: an expression over
columns (`expr`) or a plain Python function (`function`). Both declare the columns they read, so
`traits` knows for every node what may be swapped, dropped or stored. `schema` names the columns,
`fingerprint` identifies the meaning of a column across processes, `verify` checks a whole plan and
`show` prints it. `arguments` and `hints` check what users write; `decision` is how a choice is
reported. Nothing here runs anything."""
