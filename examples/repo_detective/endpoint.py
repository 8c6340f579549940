"""The scripted model behind a real HTTP endpoint, in a process that ends with the demo, whatever becomes of that.

python -m examples.repo_detective.endpoint LEDGER     prints the base URL; ends when standard input does
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from examples.repo_detective.scripted_model import script
from holdfast import HoldfastError
from holdfast.testing import FakeOpenAI, serve


async def _serve(ledger: Path) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _on_input)
    await serve(FakeOpenAI(script, ledger=ledger))


def _on_input() -> None:
    """End, as for a SIGTERM, when nobody holds the other end of standard input any more."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        signal.raise_signal(signal.SIGTERM)


def main() -> int:
    """Serve and return the exit code."""
    try:
        asyncio.run(_serve(Path(sys.argv[1])))
    except HoldfastError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
