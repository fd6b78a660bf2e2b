"""From the plan as written to the plan as run: one rule, one file; `runner` is where rules run."""
