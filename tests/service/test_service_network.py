"""A service behind a real network, of which cables are pulled: another host, in a namespace."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from service_tools import TOKEN, a_service, digests, process, self_signed

import silva as sv

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root, and iproute2"
    ),
]

_NUMBERS = itertools.count()
HERE, THERE = "10.213.77.1", "10.213.77.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Host:
    """Another host on a cable to this one."""

    name: str
    cable: str

    def inside(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    def pull(self) -> None:
        ip("link", "set", self.cable, "down")

    def plug(self) -> None:
        ip("link", "set", self.cable, "up")


@pytest.fixture
def host() -> Iterator[Host]:
    number = f"{os.getpid()}{next(_NUMBERS)}"  # a cable takes a while to be gone
    made, other = Host(f"silva-{number}", f"sv{number}a"), f"sv{number}b"
    try:
        ip("netns", "add", made.name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no namespaces here: {error.stderr!r}")
    try:
        ip("link", "add", made.cable, "type", "veth", "peer", "name", other, "netns", made.name)
        ip("addr", "add", f"{HERE}/30", "dev", made.cable)
        made.plug()
        for words in (f"addr add {THERE}/30 dev {other}", f"link set {other} up", "link set lo up"):
            ip("-n", made.name, *words.split())
        yield made
    finally:
        ip("netns", "del", made.name)


@pytest.fixture
def served(host: Host, tmp_path: Path) -> Iterator[dict[str, str]]:
    """How the service on the other host is reached."""
    certificate, key = self_signed(tmp_path, THERE)
    more = ["--host", THERE, "--certificate", str(certificate), "--key", str(key)]
    with process(before=host.inside(), more=more) as (_, address):
        assert address.startswith(f"https://{THERE}:")
        yield {"address": address, "certificate": str(certificate), "token": TOKEN}


def test_a_cable_that_is_pulled_and_plugged_in_again_is_not_noticed(host, served):
    whole = digests(a_service().loader(workers=0))
    batches = iter(sv.connect(pipeline="a_service", memory=1, **served))
    taken = digests(itertools.islice(batches, 3))
    host.pull()
    back = threading.Timer(2.0, host.plug)  # so long the reader gets no answer
    back.start()
    taken += digests(batches)
    back.join()
    assert taken == whole


def test_a_cable_that_stays_out_is_an_error_after_the_deadline(host, served):
    loader = sv.connect(pipeline="a_service", memory=1, deadline=2.0, **served)
    batches = iter(loader)
    next(batches)
    host.pull()
    with pytest.raises(sv.ServiceError, match="did not answer for 2 s"):
        digests(batches)
    host.plug()
    again = sv.connect(pipeline="a_service", **served)
    again.load_state_dict(loader.state_dict())
    assert len(digests(again)) == 250 - loader.state_dict()["step"]
