"""A service in a process of its own, which can be killed, and pipelines that it has."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from silva.testing import digest

TOKEN = "a token for tests only"[:-1].replace(" ", "-")


def photos(rows: int = 200) -> sv.Pipeline:
    """Arrays, text and random numbers, in another order in every epoch."""
    return (
        sv.from_columns({"x": range(rows), "name": [f"row {i}" for i in range(rows)]})
        .shuffle(seed=3)
        .derive(image=lambda x, rng: (rng.random((4, 4)) + x).astype(np.float32))
        .batch(16)
    )


def sentences(rows: int = 300) -> sv.Pipeline:
    """Lists of many lengths, in batches of like ones."""
    return (
        sv.from_columns({"x": range(rows)})
        .derive(t=lambda x: list(range(1 + x * 7 % 30)))
        .bucket("t", {8: 24, 16: 12, 32: 6}, pad=0)
    )


PIPELINES = {"photos": photos(), "sentences": sentences()}


def digests(loader: Any) -> list[Any]:
    return [digest(batch) for batch in loader]


@contextmanager
def process(
    port: int = 0, before: Sequence[str] = (), more: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`silva serve` on the pipeline below: the process, and its address. `before` goes before the
    command, `more` are further arguments."""
    run = "from silva.cli import main; main()"
    arguments = ["serve", f"{__file__}:a_service", "--port", str(port), "--workers", "0"]
    served = subprocess.Popen(
        [*before, sys.executable, "-c", run, *arguments, *more],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"SILVA_TOKEN": TOKEN},
    )
    try:
        assert served.stdout is not None
        address = served.stdout.readline().split()[1]
        yield served, address
    finally:
        if served.poll() is None:
            os.kill(served.pid, signal.SIGCONT)
            served.kill()
        served.communicate()


def a_service() -> sv.Pipeline:
    """What `silva serve` finds in this file: more batches than are on their way at a time."""
    return photos(4000)


def in_threads(*jobs: Any) -> list[Any]:
    """Runs all at once; what each gave."""
    found: list[Any] = [None] * len(jobs)

    def work(i: int) -> None:
        found[i] = jobs[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def self_signed(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """The files of a certificate for `localhost` and this address, and of its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(address))]
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
