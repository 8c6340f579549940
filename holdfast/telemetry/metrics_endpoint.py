"""A worker's metrics endpoint: its address and the SDK configuration for it. Off by default."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Final

from temporalio.runtime import PrometheusConfig

from holdfast.core.base.errors import HoldfastError, InvalidInput, PortTaken
from holdfast.core.wire.metric_definitions import METRICS, SDK_BUCKETS

HOST: Final = "127.0.0.1"
"""The host when only a port is given: loopback, because the endpoint has no authentication."""

ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9.]+|localhost):)?(?P<port>[0-9]{1,5})")
PORT_MAX: Final = 65_535


def metrics_address(option: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return HOST:PORT in the SDK's format, from `option` or HOLDFAST_METRICS; None if metrics are off.

    Raises InvalidInput for an invalid address: HOST must be a numeric address, not a name, and PORT must not be 0.
    """
    text = option or environment.get("HOLDFAST_METRICS")
    if not text:
        return None
    parts = ADDRESS.fullmatch(text)
    host = (parts["host"] or HOST).replace("localhost", HOST) if parts else ""
    if parts is None or not _is_number(host) or not 1 <= int(parts["port"]) <= PORT_MAX:
        problem = f"the metrics address is {text[:80]!r}"
        raise InvalidInput(f"{problem}; give HOST:PORT with a numeric host, like {HOST}:9464, or the port alone")
    return f"{host}:{int(parts['port'])}"


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def prometheus(address: str) -> PrometheusConfig:
    """Return the SDK configuration for an endpoint at `address`, with Holdfast's histogram buckets."""
    buckets = {metric.name: metric.buckets for metric in METRICS if metric.buckets}
    return PrometheusConfig(
        bind_address=address,
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides={**buckets, **SDK_BUCKETS},
    )


def not_listening(address: str, error: Exception) -> HoldfastError:
    """Return the error for an endpoint that cannot listen at `address`."""
    text = str(error)
    if "in use" in text:
        problem = f"the metrics address {address} is taken by another program"
        return PortTaken(f"{problem}; stop it or choose another one with --metrics or HOLDFAST_METRICS")
    return InvalidInput(f"the metrics address {address} cannot be used: {' '.join(text.split())[:200]}")
