"""What your load takes, by the formulas and the measurements of docs/scale.md: `python -m bench.scale.estimate`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import Final

from bench.scale.figures import Measured
from bench.scale.page import of_load
from bench.scale.sizing import EXAMPLE, EXAMPLE_PRICES, Load, coefficients, size

FIGURE_MAX: Final = 1e9
"""Larger than any real figure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the size of a load; options left out have the example's values."""
    load = _load(arguments)
    measured = Measured.read()
    if not (measured.throughput and measured.messages and measured.idle and measured.footprint):
        sys.stderr.write("error: not everything has been measured; run `python -m bench.scale --write`\n")
        return 1
    found = coefficients(measured.throughput, measured.messages, measured.idle, measured.footprint)
    print(of_load(load, size(load, EXAMPLE_PRICES, found)))
    return 0


def _load(arguments: Sequence[str] | None) -> Load:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.estimate", description=__doc__)

    def figure(name: str, read: Callable[[str], float], about: str) -> None:
        default = getattr(EXAMPLE, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=read, default=default, help=f"{about} ({default:,})")

    figure("sessions", _whole, "open sessions")
    figure("messages-per-day", _between(0, FIGURE_MAX), "messages of each session a day")
    figure("steps", _between(1, FIGURE_MAX), "model calls for each message; the last one answers")
    figure("peak", _between(1, FIGURE_MAX), "busiest second ÷ average")
    figure("retention-days", _between(0, FIGURE_MAX), "how long closed runs are kept")
    figure("busy", _between(0.01, 1), "the share of a core to plan for")
    figure("cached", _whole, "runs and sessions in each worker's memory")
    return Load(**vars(parser.parse_args(arguments)))


def _whole(text: str) -> int:
    value = _between(1, FIGURE_MAX)(text)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(value)


def _between(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
