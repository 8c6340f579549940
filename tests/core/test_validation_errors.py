"""Problems of data are told in the words of YAML and JSON."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.definition_errors import definition_of
from holdfast.core.base.bounds import HOOKS_MAX
from holdfast.core.base.errors import DefinitionInvalid


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"tools_deny": "find_order"}, "tools_deny: Input should be a list (it is 'find_order')"),
        ({"subagents": {"a": 1}}, "subagents: Input should be a list"),
        ({"approvals": {"tools": ["pay"]}}, "approvals: Input should be a list"),
        ({"llm": [1]}, "llm: Input should be a mapping of names to values"),
        ({"budget": 3}, "budget: Input should be a mapping of names to values"),
        ({"metadata": ["a"]}, "metadata: Input should be a mapping of names to values"),
        ({"hooks": [f"h{n}" for n in range(HOOKS_MAX + 1)]}, "hooks: The list should have at most"),
    ],
)
def test_a_definition_is_refused_in_the_words_of_yaml(data: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        definition_of({"name": "clerk", **data})
    assert text in str(refused.value)
    assert not any(word in str(refused.value) for word in ("tuple", "Tuple", "dictionary", "instance of"))
