"""The child process of a GGUF model: llama.cpp's server on loopback, as xllamacpp brings it.

Run as `python -m silva.serve.models.gguf.process`. The settings come as a line of JSON on standard
input, the key for requests among them; the address goes out as a line on standard output. The
process ends when its standard input does, so it never outlives the one that started it.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    import xllamacpp

    settings = json.loads(sys.stdin.readline())
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["context"]
    params.n_parallel = settings["slots"]
    params.n_batch = params.n_ubatch = settings["batch"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.swa_full = True  # without it, models with a sliding window share no prefixes
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [settings["key"]]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # without native destructors, which may abort


if __name__ == "__main__":
    main()
