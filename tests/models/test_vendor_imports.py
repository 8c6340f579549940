"""Which vendors' packages a process imports: those of the routes that it asks, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
VENDORS = {"openai", "anthropic", "pydantic_ai"}

ASKED = """
import sys
import holdfast, holdfast.models
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.core.agent.definition import LLM
from holdfast.testing import ScriptedModel, say

names = {"openai_chat": "gpt-5", "openai_responses": "gpt-5", "anthropic": "claude", "pydantic_ai": "test"}
routes = {
    api: Route(api=api, model=model, base_url=None if api == "pydantic_ai" else "http://127.0.0.1:9/v1")
    for api, model in names.items()
}
model = RoutedModel(ScriptedModel([say("x")]), routes, {})
assert not any(model.route_problem(name) for name in routes)
if asked := sys.argv[1:]:
    assert not model.problem(LLM(model=asked[0])), model.problem(LLM(model=asked[0]))
print(*{each.partition(".")[0] for each in sys.modules})
"""


@pytest.mark.parametrize(
    ("asked", "imported"),
    [
        ([], set[str]()),
        (["openai_chat"], {"openai"}),
        (["openai_responses"], {"openai"}),
        (["anthropic"], {"anthropic"}),
        (["pydantic_ai"], {"pydantic_ai"}),
    ],
)
def test_a_route_imports_its_own_vendor_when_it_is_asked(asked: list[str], imported: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED, *asked], cwd=ROOT, check=True, capture_output=True, text=True, timeout=150
    )
    assert VENDORS & set(done.stdout.split()) == imported
