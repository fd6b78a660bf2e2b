"""The rules, one per file. Each opens with its motive, the plan before and after, where it must not
fire, and the law that makes it correct."""
