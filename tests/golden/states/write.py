"""Writes the golden states: of each shape, some states and the digests of what comes after them.

    PYTHONPATH=src:tests/attack python tests/golden/states/write.py FOLDER

Those of version 1 were written by silva 0.1. They are never written again; a later version of
states gets files of its own. (Their digests were computed again, from the same batches, when
`digest` came to tell more apart.)
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from state_shapes import fragile, shapes

import silva as sv
from silva.testing import digest, stream

POLICIES = {"raise": "raise", "skip": sv.Skip(at_most=50)}


def golden(pipeline: sv.Pipeline, policy: str) -> dict:
    """What comes after a state is taken from the stream that was not interrupted."""
    loader = pipeline.loader(backend="inline", on_error=POLICIES[policy])
    states, whole = [], []
    for batch in loader:
        whole.append(digest(batch))
        states.append(json.loads(json.dumps(loader.state_dict())))
    last = len(states) - 1
    found = [
        {"state": states[number], "rest": whole[number + 1 :]}
        for number in sorted({0, last // 3, last // 2, last})
    ]
    found.append({"state": loader.state_dict(), "rest": stream(loader)})
    return {"policy": policy, "states": found}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        made = {"raise": shapes(Path(data)), "skip": shapes(Path(data), fragile)}
        for policy, pipelines in made.items():
            for name, build in pipelines.items():
                file = folder / f"{name.replace(', ', '-').replace(' ', '_')}-{policy}.json"
                text = json.dumps({"shape": name, **golden(build(), policy)})
                file.write_text(text.replace(data, "data"))
                print(file.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
