"""Alert rules and dashboard: what promtool and a provisioned Grafana take, and the page that explains each alert."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from holdfast.core.wire.metric_definitions import METRICS
from tests.telemetry.watching import (
    ALERTS,
    DASHBOARD,
    DEPLOY,
    alerts,
    dashboard,
    expressions,
    named_in_rules_and_dashboard,
)

ROOT = DEPLOY.parent
PAGE = ROOT / "docs" / "operate.md"
RULE_TESTS = Path(__file__).parent / "alerts.test.yml"
MOUNTED = re.compile(r"- (?:\.|\./)?(grafana/[\w./-]+):")


def test_every_alert_has_its_section_in_the_page_and_every_section_an_alert() -> None:
    sections = re.findall(r"^### (Holdfast\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in alerts()]
    assert all(rule["labels"]["severity"] in ("critical", "warning") for rule in alerts())
    assert all(rule["annotations"]["summary"].endswith(".") for rule in alerts())


def test_every_metric_of_ours_is_told_in_the_page_and_seen_on_the_dashboard() -> None:
    table = PAGE.read_text().partition("## Metrics")[2]
    seen = named_in_rules_and_dashboard()
    for metric in METRICS:
        name = metric.name if metric.buckets else f"{metric.name}_total"
        assert f"| `{name}` |" in table, name
        assert any(each.startswith(name) for each in seen), name


def test_the_dashboard_can_be_provisioned() -> None:
    board = dashboard()
    assert (board["uid"], board["title"]) == ("holdfast", "Holdfast")
    assert "__inputs" not in board, "a provisioned dashboard is asked nothing"
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    mounted = MOUNTED.findall((DEPLOY / "compose.yaml").read_text())
    assert {DEPLOY / each for each in mounted} >= {DASHBOARD}
    assert all((DEPLOY / each).is_file() for each in mounted)


def filled(expression: str) -> str:
    """Return an expression of the dashboard's as Grafana would ask it."""
    known = {"$agent": ".*", "$__rate_interval": "5m", "$__range": "6h"}
    return re.sub(r"\$\w+", lambda found: known.get(found[0], found[0]), expression)


@pytest.mark.deploy
def test_promtool_takes_the_rules_and_they_fire_when_they_should(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: apt-get install prometheus")
    asked = tmp_path / "asked.yml"
    rules = [{"record": f"asked:{number}", "expr": filled(each)} for number, each in enumerate(expressions())]
    asked.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules[:-1]}]}))  # the last is Grafana's own
    for command in (
        ("check", "rules", str(asked)),
        ("check", "rules", str(ALERTS)),
        ("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")),
        ("test", "rules", str(RULE_TESTS)),
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"alertname: (\w+)", RULE_TESTS.read_text()))
    assert tested == {rule["alert"] for rule in alerts()}, "each rule has its test"
