"""Mixes two sources 3 : 1, stops in the middle and resumes.

Run it: `python examples/mixing.py`
"""

import json

import numpy as np

import silva as sv


def pipeline() -> sv.Pipeline:
    web = sv.from_columns({"x": np.arange(3000)}).derive(source=0)
    books = sv.from_columns({"x": np.arange(1000)}).derive(source=1)
    mixed = sv.mix([web.shuffle(seed=1), books.shuffle(seed=2)], weights=[3, 1])
    return mixed.derive(noise=lambda x, rng: x + rng.normal()).batch(50)


def main() -> None:
    whole = [batch["noise"] for batch in pipeline().loader(workers=0)]
    first = pipeline().loader(backend="threads", workers=2)
    batches = iter(first)
    seen = [next(batches) for _ in range(30)]
    state = json.dumps(first.state_dict())
    first.close()
    print(f"share of books so far: {np.mean([b['source'].mean() for b in seen]):.3f}")
    print(f"state: {len(state)} bytes of JSON")

    second = pipeline().loader(workers=0)
    second.load_state_dict(json.loads(state))
    resumed = [batch["noise"] for batch in second]
    same = all(np.array_equal(a, b) for a, b in zip(whole[30:], resumed, strict=True))
    print(f"the {len(resumed)} batches after the restart are the expected ones: {same}")


if __name__ == "__main__":
    main()
