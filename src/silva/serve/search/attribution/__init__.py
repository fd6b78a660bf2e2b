"""Which step of a pipeline is worth working on next.

`what_if.py` asks what each step would gain if it were perfect, better, removed or faster.
`interventions.py` runs the pipeline with other results of a step, such as those of `gold.py`;
`recording.py` times the steps and replays them in the simulator. `gains.py` is what comes out.
"""
