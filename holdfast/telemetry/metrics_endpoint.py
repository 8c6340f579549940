"""A worker's metrics endpoint: its address and the SDK configuration for it. Off by default."""

from __future__ import annotations

import os
from collections.abc import Mapping

from temporalio.runtime import PrometheusConfig

from holdfast.core.base.errors import HoldfastError, InvalidInput, PortTaken
from holdfast.core.wire.metric_definitions import METRICS, SDK_BUCKETS
from holdfast.telemetry.endpoint_address import endpoint_address


def metrics_address(option: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return HOST:PORT in the SDK's format, from `option` or HOLDFAST_METRICS; None if metrics are off.

    Raises InvalidInput for an invalid address: HOST must be a numeric address, not a name, and PORT must not be 0.
    """
    return endpoint_address("metrics", option or environment.get("HOLDFAST_METRICS"), example=9464)


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
