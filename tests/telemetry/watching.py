"""The alert rules and the dashboard in deploy/, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "holdfast.json"

PROMETHEUS_OWN = {"up"}
"""What Prometheus itself knows of whatever it reads."""

METRIC = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)(?=\{|\[)|\b((?:holdfast|temporal)_[a-z_]+)\b")
"""What stands before a selector or a range; and our own names, wherever they stand."""


def alerts() -> list[dict[str, Any]]:
    """Return every rule."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def expressions() -> Iterator[str]:
    """Every expression of the rules and the dashboard's panels and variables."""
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ()))
    yield from (each["definition"] for each in dashboard()["templating"]["list"] if "definition" in each)


def named_in_rules_and_dashboard() -> set[str]:
    """Return every metric that they name."""
    return {
        found[1] or found[2]
        for expression in expressions()
        for found in METRIC.finditer(re.sub(r'"[^"]*"', '""', expression))
    }
