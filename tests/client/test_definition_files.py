"""Agents from files: every form that is read, every fault named in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from pydantic import BaseModel

from holdfast.client import definition_files
from holdfast.client.definition_files import (
    find_agent,
    load_agents,
    load_definition,
    load_text,
    to_json,
    to_markdown,
    to_yaml,
)
from holdfast.connection.settings import Settings
from holdfast.core.agent.agent import Agent
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule, JsonSchemaFormat
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX
from holdfast.core.base.errors import DefinitionInvalid, HoldfastError, InvalidInput, UnknownAgent
from holdfast.core.base.usage import Prices
from tests.core.defining import definitions as drawn

FRONT = """---
name: clerk
description: knows where orders are
llm:
  model: small
  temperature: 0.5
tools: [find_order]
tools_deny: []
budget: {max_steps: 8, max_seconds: 120}
metadata: {team: sales, floors: [1, 2.5, null, true]}
---
You answer questions.

---
Never guess.
"""
YAML = FRONT.split("---\n")[1] + 'system_prompt: "You answer questions.\\n\\n---\\nNever guess."\n'

CLERK = AgentDefinition(
    name="clerk",
    description="knows where orders are",
    system_prompt="You answer questions.\n\n---\nNever guess.",
    llm=LLM(model="small", temperature=0.5),
    tools=("find_order",),
    budget=ExecutionBudget(max_steps=8, max_seconds=120),
    metadata={"team": "sales", "floors": [1, 2.5, None, True]},
)

Written = Callable[[str, str | bytes], Path]
Write = Callable[[AgentDefinition], str]
FORMS: list[tuple[Write, str]] = [(to_markdown, ".md"), (to_yaml, ".yaml"), (to_json, ".json")]
PROMPTS = [
    "",
    " ",
    "---",
    "---\nname: b\n---\nx",
    "a\n---",
    "trailing  ",
    "trailing line\n",
    "\n\nlines around\n\n",
    "blanks  \nat an end",
    "  indented\nfirst line",
    "one\r\ntwo\rthree",
    "\ufeffmark",
    "a\u2028---\x85b",
    "\x00\x07\x1b[31m",
    "\U0001f600 größe",
    "key: value # no comment",
    "null",
    "2020-01-01",
    "\ttab",
]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """`written("a.md", text)` makes a definition file in `tmp_path`."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def told(asked: Callable[[], object], kind: type[HoldfastError] = DefinitionInvalid) -> str:
    """Return the message with which `asked` is refused, which must be one line."""
    with pytest.raises(kind) as caught:
        asked()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("other.md", FRONT),
        ("other.md", "\ufeff" + FRONT),
        ("other.md", FRONT.replace("\n", "\r\n")),
        ("other.yaml", YAML),
        ("other.yml", YAML),
        ("other.json", CLERK.model_dump_json()),
        ("other.json", CLERK.model_dump_json(exclude_defaults=True)),
    ],
    ids=["md", "byte order mark", "CRLF", "yaml", "yml", "json", "json without defaults"],
)
def test_every_form_gives_the_same_agent(written: Written, name: str, content: str) -> None:
    read = load_definition(written(name, content))
    assert read.model_copy(update={"system_prompt": read.system_prompt.replace("\r\n", "\n")}) == CLERK


@pytest.mark.parametrize(
    ("name", "content", "prompt"),
    [
        ("a.md", "You help.\n", "You help."),
        ("a.md", "", ""),
        ("a.md", "---\n---\nYou help.", "You help."),
        ("a.md", "---\nsystem_prompt: You help.\n---\n \n", "You help."),
        ("a.json", "{}", ""),
    ],
)
def test_a_file_s_name_is_the_agent_s_unless_it_says_otherwise(
    written: Written, name: str, content: str, prompt: str
) -> None:
    assert load_definition(written(name, content)) == AgentDefinition(name="a", system_prompt=prompt)


class Verdict(BaseModel):
    good: bool


WHOLE_MARKDOWN = """---
name: judge
label: The judge
llm: {model: large, prices: {input_usd: 2.5, output_usd: 10}}
tools: []
tools_deny: [drop]
hooks: [guard]
subagents: [clerk]
approvals:
  - tools: ["pay_*", refund]
    expires_seconds: 3600
overridable: [steps_limit]
response_format:
  type: json_schema
  name: Verdict
  json_schema:
    properties:
      good: {title: Good, type: boolean}
    required: [good]
    title: Verdict
    type: object
context:
  view: all
  summary: {above_input_tokens: 50000}
budget: {max_cost: 1.5, deadline: 2030-01-01T00:00:00Z}
---
You judge.
"""
WHOLE = Agent(
    name="judge",
    label="The judge",
    prompt="You judge.",
    model=LLM(model="large", prices=Prices(input_usd=2.5, output_usd=10)),
    tools_deny=["drop"],
    hooks=["guard"],
    subagents=["clerk"],
    approvals=[ApprovalRule(tools=("pay_*", "refund"), expires_seconds=3600)],
    answers=Verdict,
    overridable=["steps_limit"],
    context={"view": "all", "summary": {"above_input_tokens": 50_000}},
    budget=ExecutionBudget(max_cost=1.5, deadline=datetime(2030, 1, 1, tzinfo=UTC)),
).definition


def test_python_and_the_files_give_the_very_same_agent() -> None:
    head, prompt = WHOLE_MARKDOWN.removeprefix("---\n").split("---\n")
    assert load_text(WHOLE_MARKDOWN, ".md", "x") == WHOLE
    assert load_text(f"{head}system_prompt: {prompt}", ".yaml", "x") == WHOLE
    assert load_text(WHOLE.model_dump_json(), ".json", "x") == WHOLE


def test_a_folder_gives_its_agents_by_name_and_nothing_else(written: Written, tmp_path: Path) -> None:
    for name in ("b.md", "a.yaml", "c.json"):
        written(name, "{}" if name != "b.md" else "hi")
    for name in ("README.md", "readme.md", "notes.txt", "a.md~", ".hidden"):
        written(name, "not a definition: [")
    written("d.md", "---\nname: elsewhere\n---\n")
    assert list(load_agents(tmp_path)) == ["a", "b", "c", "elsewhere"]


def test_an_absent_folder_has_no_agents(tmp_path: Path) -> None:
    assert load_agents(tmp_path / "none") == {}


# --- which one is meant


def test_an_agent_is_found_by_its_name_its_file_s_name_and_its_path(written: Written, tmp_path: Path) -> None:
    path = written("b.md", "---\nname: clerk\n---\n")
    written("a.md", "hi")
    assert find_agent("clerk", Settings(agents_dir=tmp_path)).name == "clerk"
    assert find_agent("a", Settings(agents_dir=tmp_path)).name == "a"
    assert find_agent(str(path), Settings(agents_dir=tmp_path / "none")).name == "clerk"


def test_a_broken_neighbour_does_not_matter(written: Written, tmp_path: Path) -> None:
    written("a.md", "hi")
    written("broken.yaml", "tools: [")
    assert find_agent("a", Settings(agents_dir=tmp_path)).name == "a"


def test_a_file_that_names_another_agent_does_not_answer_to_its_file_name(written: Written, tmp_path: Path) -> None:
    written("a.md", "---\nname: b\n---\n")
    assert "'a'" in told(lambda: find_agent("a", Settings(agents_dir=tmp_path)), UnknownAgent)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("assistent", "did you mean 'assistant'?"),
        ("zzz", "there are: assistant, clerk"),
        ("", "there are: assistant, clerk"),
        ("../assistant", ""),
        ("two\nlines\x1b[31m", "there are: assistant, clerk"),
        ("x" * 5_000, "there are: assistant, clerk"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_one(written: Written, tmp_path: Path, asked: str, hint: str) -> None:
    written("assistant.md", "hi")
    written("clerk.md", "hi")
    message = told(lambda: find_agent(asked, Settings(agents_dir=tmp_path)), UnknownAgent)
    assert hint in message
    assert len(message) < 400
    assert message.isprintable()


def test_an_empty_folder_says_that_there_are_none(tmp_path: Path) -> None:
    message = told(lambda: find_agent("a", Settings(agents_dir=tmp_path)), UnknownAgent)
    assert message.endswith("there are: none (`--import MODULE` adds those of a module)")


def test_two_files_of_one_name_are_refused(written: Written, tmp_path: Path) -> None:
    written("a.md", "hi")
    written("b.md", "---\nname: a\n---\n")
    message = told(lambda: load_agents(tmp_path))
    assert "b.md" in message
    assert "already defines 'a'; rename one" in message


def test_every_broken_file_of_a_folder_is_told_at_once(written: Written, tmp_path: Path) -> None:
    written("a.md", "---\nbugdet: {}\nerrors: recver\n---\n")
    written("b.json", "{")
    written("c.md", "fine")
    written("d.md", "---\nname: c\n---\n")
    message = told(lambda: load_agents(tmp_path))
    for words in (
        f"{tmp_path / 'a.md'}: errors: 'recver'",
        "unknown field 'bugdet'",
        f"{tmp_path / 'b.json'}: cannot be read",
        f"{tmp_path / 'd.md'}: another file",
    ):
        assert message.count(words) == 1, words


def test_too_many_definitions_are_refused(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_files, "AGENTS_MAX", 1)
    written("a.md", "hi")
    written("b.md", "hi")
    assert "holds 2 definitions, at most 1" in told(lambda: load_agents(tmp_path), InvalidInput)


def test_a_folder_that_is_a_file_is_told(written: Written) -> None:
    path = written("agents", "hi")
    assert f"{path} cannot be read: Not a directory" in told(lambda: load_agents(path), InvalidInput)


# --- what is refused


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.md", "---\nbugdet: {max_steps: 3}\n---\n", "unknown field 'bugdet', did you mean 'budget'?"),
        ("a.md", "---\nllm: {modle: x}\n---\n", "unknown field 'llm.modle', did you mean 'model'?"),
        ("a.md", "---\nbudget: {max_stpes: 3}\n---\n", "'budget.max_stpes', did you mean 'max_steps'?"),
        ("a.md", "---\nbudget: {max_steps: -1}\n---\n", "budget.max_steps"),
        ("a.json", '{"budget": {"max_seconds": 1e999}}', "budget.max_seconds"),
        ("a.yaml", "budget: {max_seconds: .nan}", "budget.max_seconds"),
        ("a.yaml", "budget: {max_seconds: 1.0e+300}", "budget.max_seconds"),
        ("a.yaml", "budget: {deadline: 2026-01-01T00:00:00}", "budget.deadline"),
        ("a.yaml", f"budget: {{max_steps: {'9' * 5000}}}", "4300 digits"),
        ("a.yaml", "metadata: {when: 2020-01-01}", "metadata.when: input was not a valid JSON value"),
        ("a.yaml", "metadata: {a: [{b: 2020-01-01}]}", "metadata.a.0.b: input was not"),
        ("a.yaml", "metadata: {a: {on: 1}}", "metadata.a.1: is not a text; put the name in quotes"),
        ("a.json", '{"metadata": {"\\u001b[31m": NaN}}', "metadata.\\x1b[31m: Input should be a finite number"),
        ("a.yaml", "errors: recver", "errors: 'recver' is not a value of it, did you mean 'recover'?"),
        ("a.yaml", "errors: 1", "errors: '1' is not a value of it, there are: fatal, recover"),
        ("a.yaml", "overridable: [error, step_limit]", "overridable.1: 'step_limit' is not a value of it, did"),
        ("a.yaml", "response_format: {type: jsn_schema}", "response_format.type: 'jsn_schema' is not a value of it"),
        ("a.yaml", "response_format: {type: json_schema, schema: {}}", "'response_format.schema', did you mean"),
        ("a.yaml", "response_format: {type: json_schema}", "response_format.json_schema: is missing"),
        ("a.yaml", "response_format: {type: json_schema, json_schema: []}", "response_format.json_schema: Input"),
        ("a.yaml", "context: {summary: {keep: 3}}", "unknown field 'context.summary.keep', there are: above_input_tok"),
        ("a.yaml", "approvals: [{tool: [pay]}]", "unknown field 'approvals.0.tool', did you mean 'tools'?"),
        ("a.yaml", "llm: {prices: {input: 1}}", "unknown field 'llm.prices.input', did you mean 'input_usd'?"),
        ("a.yaml", "tools: [add, add]", "tools: 'add' is given twice; keep one"),
        ("a.md", "---\ntools:\n---\n", "`tools:` has no value; write [] for none"),
        ("a.yaml", "hooks: null", "`hooks:` has no value; write [] for none"),
        ("a.yaml", "when: 2020-99-99", "month must be in 1..12"),
        ("a.yaml", "[1, 2]", "a mapping of fields, this is a list"),
        ("a.yaml", "", "a mapping of fields, this is a NoneType"),
        ("a.json", "", "line 1 column 1"),
        ("a.json", '"text"', "a mapping of fields, this is a str"),
        ("a.json", '{"system_prompt": "\\ud800"}', "system_prompt"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.yaml", "[" * 20_000, "cannot be read"),
        ("a.yaml", "tools: [multiply", "line 1"),
        ("a.yaml", "a: \x00", "cannot be read"),
        ("a.yaml", "a: &a [1]\nb: *a\n", "aliases (*name) are not allowed"),
        ("a.yaml", "tools: [a]\ntools: [b]\n", "'tools'"),
        ("a.yaml", 'name: !!python/object/apply:os.system ["true"]', "python/object/apply"),
        ("a.yaml", "1: x\n", "unknown field '1'"),
        ("a.md", "---\nname: x\n", "no closing `---` line"),
        ("a.md", "---\nsystem_prompt: x\n---\ny", "keep one"),
        ("a.md", b"\xff\xfe", "is not UTF-8 text"),
        ("my agent.md", "hi", "name: "),
        (f"{'a' * 65}.md", "hi", "name: "),
        ("a.md", "x" * DEFINITION_BYTES_MAX, f"at most {DEFINITION_BYTES_MAX:,} are allowed"),
        ("a.md", "x" * (4 * DEFINITION_BYTES_MAX + 1), f"({DEFINITION_BYTES_MAX:,} bytes)"),
    ],
)
def test_a_fault_is_named_in_one_line(written: Written, name: str, content: str | bytes, words: str) -> None:
    path = written(name, content)
    message = told(lambda: load_definition(path))
    assert message.startswith(f"{path}: ")
    assert words in message
    assert len(message) < 1_000


def test_every_problem_of_a_file_is_named_at_once(written: Written) -> None:
    path = written("a.json", json.dumps({"llm": {"temperature": 9}, "bugdet": {}, "tools": "nope", "description": 1}))
    message = told(lambda: load_definition(path))
    assert all(field in message for field in ("llm.temperature", "'bugdet'", "tools", "description"))


@pytest.mark.parametrize("name", ["none.md", "folder.md", "circle.md", "x" * 300 + ".md", "a\0b.md"])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "circle.md").symlink_to("circle.md")
    assert "cannot be read" in told(lambda: find_agent(str(tmp_path / name), Settings(agents_dir=tmp_path)))


@pytest.mark.timeout(60)
def test_what_is_not_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    assert "not a file" in told(lambda: load_definition(tmp_path / "pipe.md"))


def test_a_response_format_is_read_from_a_file(written: Written) -> None:
    path = written("a.yaml", "response_format: {type: json_schema, json_schema: {type: object, required: [sum]}}\n")
    wanted = load_definition(path).response_format
    assert wanted == JsonSchemaFormat(json_schema={"type": "object", "required": ["sum"]})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{type: objekt}", "'objekt'"),
        ("{$ref: 'http://127.0.0.1:9/schema.json'}", "leads to nothing within the schema"),
        ("{$ref: '#'}", "refers to itself"),
        ("{pattern: '('}", "regex"),
    ],
)
def test_a_schema_that_no_answer_could_be_checked_against_is_refused(written: Written, schema: str, said: str) -> None:
    path = written("a.yaml", f"response_format: {{type: json_schema, json_schema: {schema}}}\n")
    with pytest.raises(DefinitionInvalid, match=said) as caught:
        load_definition(path)
    assert "response_format.json_schema" in caught.value.message
    assert "\n" not in caught.value.message


# --- what is written


@given(drawn)
def test_each_written_form_is_read_as_the_same_agent(definition: AgentDefinition) -> None:
    for write, suffix in FORMS:
        text = write(definition)
        assert load_text(text, suffix, "other") == definition, suffix
        assert write(load_text(text, suffix, "other")) == text, "the canonical form of a canonical form is itself"


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(("write", "suffix"), FORMS, ids=["md", "yaml", "json"])
def test_a_written_file_keeps_every_prompt(written: Written, write: Write, suffix: str, prompt: str) -> None:
    definition = AgentDefinition(name="a", system_prompt=prompt)
    assert load_definition(written(f"a{suffix}", write(definition))) == definition


@pytest.mark.parametrize(("write", "suffix"), FORMS, ids=["md", "yaml", "json"])
def test_no_tools_and_every_tool_are_told_apart_in_every_form(write: Write, suffix: str) -> None:
    none, every = AgentDefinition(name="a"), AgentDefinition(name="a", tools="all", hooks="all")
    assert "tools" not in write(none)
    assert load_text(write(none), suffix, "a") == none == AgentDefinition(name="a", tools=(), hooks=())
    assert load_text(write(every), suffix, "a") == every


def test_defaults_are_left_out_and_fields_keep_their_order() -> None:
    assert to_yaml(AgentDefinition(name="a")) == "name: a\n"
    assert json.loads(to_json(AgentDefinition(name="a"))) == {"name": "a"}
    fields = list(json.loads(to_json(WHOLE)))
    assert fields == [name for name in AgentDefinition.model_fields if name in fields]


def test_markdown_holds_the_prompt_as_its_body() -> None:
    assert to_markdown(CLERK).endswith("---\nYou answer questions.\n\n---\nNever guess.\n")
    assert "system_prompt" not in to_markdown(CLERK)


def test_a_prompt_of_several_lines_is_written_as_lines() -> None:
    written = to_yaml(AgentDefinition(name="a", system_prompt="Rules:\n\n  - be brief\n"))
    assert written == "name: a\nsystem_prompt: |\n  Rules:\n\n    - be brief\n"
