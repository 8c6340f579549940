#!/usr/bin/env python3
"""Starts Temporal's development server with the dynamic configuration of a real one, so that tests exercise that file.

It becomes the server (exec): signals and the exit code are the server's own.
"""

import json
import os
import sys
from pathlib import Path

import yaml

COMMAND = ("temporal", "server", "start-dev", "--ip", "0.0.0.0", "--headless", "--log-level", "warn")  # noqa: S104


def flags(dynamic_config: str) -> list[str]:
    """Return a `--dynamic-config-value` for every key of a dynamic configuration file, with its first value."""
    settings: dict[str, list[dict[str, object]]] = yaml.safe_load(dynamic_config)
    return [
        word
        for key, values in settings.items()
        for word in ("--dynamic-config-value", f"{key}={json.dumps(values[0]['value'])}")
    ]


if __name__ == "__main__":
    sys.stderr.write("This is a STAND-IN: Temporal's development server, in memory. Not for production.\n")
    text = Path(os.environ["DYNAMIC_CONFIG_FILE_PATH"]).read_text(encoding="utf-8")
    os.execvp(COMMAND[0], [*COMMAND, *flags(text)])  # noqa: S606 - no shell is wanted
