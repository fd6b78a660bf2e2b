"""Mutated encodings for every decoder of bytes that somebody else may have written.

    INPUTS=1000000 SEED=7 python tests/attack/fuzz_decoders.py

Each decoder runs in a process of its own with little memory. An input must decode to a value that
can be read through to its last element, or be refused with the decoder's own error. A process that
dies, hangs, takes memory without bounds or raises anything else is a finding, told with what runs
just that input again: `DECODER=columns SEED=7 INPUT=4711`.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

_HEADROOM = 1 << 30
"""Bytes that a decoder may have: thousands of times its inputs."""
_STUCK = 60.0
"""Seconds without a further input."""
_FINDINGS = 5
"""After so many, a decoder is given up."""
_TOLD = struct.Struct("<qqq")
"""The input at work, those that decoded, and those that were refused."""


class Outcome(NamedTuple):
    decoder: str
    inputs: int
    decoded: int
    refused: int
    seconds: float
    findings: list[str]


def _say(text: str) -> None:
    print(text, flush=True)


def fuzz(inputs: int, seed: int, only: str = "", say: Callable[[str], None] = _say) -> list[str]:
    """Runs so many inputs, shared out to the decoders; returns what was found, for people."""
    from fuzz_decoder_targets import SHARES

    names = [only] if only else list(SHARES)
    whole = sum(SHARES[name] for name in names)
    findings, total, began = [], 0, time.monotonic()
    for name in names:
        outcome = _watched(name, seed, max(inputs * SHARES[name] // whole, 1))
        total += outcome.inputs
        findings += outcome.findings
        say(
            f"{name:10} {outcome.inputs:9,} inputs, {outcome.decoded:8,} decoded, "
            f"{outcome.refused:9,} refused, {outcome.seconds:6.1f} s"
        )
        for finding in outcome.findings:
            say(finding)
    seconds = time.monotonic() - began
    say(f"seed {seed}: {total:,} inputs in {seconds:.0f} s, {len(findings)} findings")
    return findings


def _watched(name: str, seed: int, inputs: int) -> Outcome:
    """Runs a child until all inputs are done; one that dies is replaced after the input."""
    findings: list[str] = []
    began, first, decoded, refused = time.monotonic(), 0, 0, 0
    with tempfile.NamedTemporaryFile() as shared, tempfile.TemporaryFile("w+") as errors:
        shared.truncate(_TOLD.size)
        with mmap.mmap(shared.fileno(), _TOLD.size) as told:
            while first < inputs and len(findings) < _FINDINGS:
                told[:] = _TOLD.pack(first, 0, 0)
                errors.seek(0)
                errors.truncate()
                command = [sys.executable, __file__, name, str(seed), str(first), str(inputs)]
                child = subprocess.Popen([*command, shared.name], stderr=errors)
                stuck = _wait(child, told)
                at, good, bad = _TOLD.unpack(told[:])
                decoded, refused, first = decoded + good, refused + bad, at + 1
                if child.returncode == 0:
                    first = inputs
                    break
                errors.seek(0)
                how = "hangs" if stuck else f"ended with code {child.returncode}"
                again = f"DECODER={name} SEED={seed} INPUT={at} python {sys.argv[0]}"
                findings.append(f"{name}: {how}\n  {again}\n{errors.read()[-4000:]}")
    return Outcome(name, first, decoded, refused, time.monotonic() - began, findings)


def _wait(child: subprocess.Popen[bytes], told: mmap.mmap) -> bool:
    """Waits for its end; True where it had to be killed."""
    last, since = told[:], time.monotonic()
    while True:
        try:
            child.wait(1.0)
            return False
        except subprocess.TimeoutExpired:
            if told[:] != last:
                last, since = told[:], time.monotonic()
            elif time.monotonic() - since > _STUCK:
                child.send_signal(6)  # with the stack of where it was
                child.wait()
                return True


def _child(name: str, seed: int, first: int, stop: int, shared: str) -> None:
    from fuzz_decoder_targets import open_target

    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder, open(shared, "r+b") as file:
        target = open_target(name, Path(folder))
        told = mmap.mmap(file.fileno(), _TOLD.size)
        _limit_memory()
        decoded = refused = 0
        for number in range(first, stop):
            told[:] = _TOLD.pack(number, decoded, refused)
            if target.run(Random(f"{name} {seed} {number}")):
                decoded += 1
            else:
                refused += 1
        told[:] = _TOLD.pack(stop, decoded, refused)


def _limit_memory() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (held + _HEADROOM, held + _HEADROOM))


def main() -> int:
    if len(sys.argv) > 1:
        name, seed, first, stop, shared = sys.argv[1:]
        try:
            _child(name, int(seed), int(first), int(stop), shared)
        except BaseException:  # noqa: BLE001  the parent tells it
            traceback.print_exc()
            return 1
        return 0
    seed = int(os.environ.get("SEED") or Random().randrange(1 << 31))
    only = os.environ.get("DECODER", "")
    if os.environ.get("INPUT"):
        with tempfile.NamedTemporaryFile() as shared_file:
            shared_file.truncate(_TOLD.size)
            at = int(os.environ["INPUT"])
            _child(only, seed, at, at + 1, shared_file.name)
        return 0
    return bool(fuzz(int(os.environ.get("INPUTS") or 20_000), seed, only))


if __name__ == "__main__":
    sys.exit(main())
