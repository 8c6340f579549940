"""An agent as text and back: Markdown with YAML front matter, YAML, JSON. Opens no file.

Written forms are canonical: fields in their declared order, defaults left out. Reading
one gives the same definition again, whatever its texts hold.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import yaml

from holdfast.client.validation import check_definition
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.definition_errors import definition_of
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput
from holdfast.core.base.json_parsing import named_once
from holdfast.runtime.plain_yaml import PlainLoader

SUFFIXES: Final = (".md", ".yaml", ".yml", ".json")

YAML_COLUMNS: Final = 120
"""Where lines of written YAML are folded."""


class _PlainDumper(yaml.SafeDumper):
    """YAML without aliases, a field a line, texts of several lines as a block wherever that loses nothing."""

    def serialize(self, node: Any) -> None:  # noqa: ANN401  # PyYAML's signature
        node.flow_style = False  # of the root alone: what is small inside stays on one line
        super().serialize(node)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002  # PyYAML's signature
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text and _plain_lines(text) else None if text.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)  # pyright: ignore[reportUnknownMemberType]


_PlainDumper.add_representer(str, _PlainDumper.represent_text)


def load_text(text: str, suffix: str, name: str) -> AgentDefinition:
    """Return the agent that `text` describes in the notation of `suffix` (".md", ".yaml", ".yml", ".json").

    It is called `name` unless the text says otherwise. Raises DefinitionInvalid with every problem in one line.
    """
    try:
        data = _parsed(text.removeprefix("\ufeff"), suffix)
    except yaml.YAMLError as error:
        raise DefinitionInvalid(f"the YAML cannot be read: {' '.join(str(error).split())[:300]}") from None
    except (ValueError, RecursionError) as error:
        raise DefinitionInvalid(f"cannot be read: {error}") from None
    try:
        return check_definition(definition_of({"name": name, **data}))
    except DefinitionInvalid:
        raise
    except InvalidInput as error:
        raise DefinitionInvalid(error.message) from None


def to_json(definition: AgentDefinition) -> str:
    """Return `definition` as canonical JSON."""
    return json.dumps(_fields(definition), ensure_ascii=False, indent=2) + "\n"


def to_yaml(definition: AgentDefinition) -> str:
    """Return `definition` as canonical YAML."""
    return _yaml(_fields(definition))


def to_markdown(definition: AgentDefinition) -> str:
    """Return `definition` as canonical Markdown: the prompt is the body where a body can carry it unchanged."""
    fields = _fields(definition)
    prompt = definition.system_prompt
    if not prompt or prompt != prompt.strip() or "\r" in prompt:  # reading strips a body, and files change line ends
        return f"---\n{_yaml(fields)}---\n"
    del fields["system_prompt"]
    return f"---\n{_yaml(fields)}---\n{prompt}\n"


def _fields(definition: AgentDefinition) -> dict[str, Any]:
    """Return what differs from the defaults, as JSON-ready data."""
    fields = definition.model_dump(mode="json", exclude_defaults=True)
    if "response_format" in fields:  # its type is a default of each form, but tells which form it is
        fields["response_format"] = {"type": definition.response_format.type, **fields["response_format"]}
    if not definition.metadata:  # pydantic does not know the defaults that a factory makes
        fields.pop("metadata", None)
    return fields


def _yaml(fields: dict[str, Any]) -> str:
    return yaml.dump(
        fields, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=YAML_COLUMNS
    )


def _plain_lines(text: str) -> bool:
    """Return whether a block keeps `text`: lines printable and without blanks at their ends, words first and last."""
    lines = text.removesuffix("\n").split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return plain and bool(lines[-1]) and lines[0] != "" and not lines[0].startswith(" ")


def _parsed(text: str, suffix: str) -> dict[str, Any]:
    """Return the fields of a definition; the body of a Markdown file is the system prompt."""
    if suffix == ".json":
        return _mapping(json.loads(text, object_pairs_hook=named_once))
    if suffix != ".md":
        return _chosen(_mapping(yaml.load(text, PlainLoader)))  # noqa: S506  # a SafeLoader, stricter
    head, body = _front_matter(text)
    data = _chosen(_mapping(yaml.load(head, PlainLoader) or {}))  # noqa: S506  # a SafeLoader
    if body.strip():
        if data.get("system_prompt"):
            raise ValueError("it has both a system_prompt field and a text below the front matter; keep one")
        data["system_prompt"] = body.strip()
    return data


def _front_matter(text: str) -> tuple[str, str]:
    """Return what stands between the two `---` lines at the top, and what follows them."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return "", text
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return "\n".join((*lines[1:number], "")), "\n".join(lines[number + 1 :])
    raise ValueError("the front matter has no closing `---` line")


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a definition is a mapping of fields, this is a {type(value).__name__}")  # noqa: TRY004  # one except
    return {str(name): each for name, each in cast("dict[object, Any]", value).items()}


def _chosen(data: dict[str, Any]) -> dict[str, Any]:
    """Return `data`; raises ValueError for `tools:` with nothing after it, which can mean two things."""
    for field in ("tools", "hooks"):
        if field in data and data[field] is None:
            raise ValueError(f"`{field}:` has no value; write [] for none, or all for every one")
    return data
