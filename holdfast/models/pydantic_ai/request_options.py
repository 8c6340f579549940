"""What goes with a conversation: the definition's options, the tools and the answer's form, in Pydantic AI's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings, ServiceTier
from pydantic_ai.tools import ToolDefinition

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.base.model_options import named_tool
from holdfast.core.conversation.attachments import PDF_TYPE, FileKind
from holdfast.models.strict_tools import can_be_strict

SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "reasoning_effort": "thinking",
    "stop": "stop_sequences",
    "seed": "seed",
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
    "extra": "extra_body",
}
"""The options of a definition that Pydantic AI has a setting for, with the setting; `strict` goes with each tool."""

TIERS: Final[frozenset[str]] = frozenset(get_args(ServiceTier))
"""Pydantic AI's words for service tiers, which it translates into each provider's."""

JSON_OBJECT: Final = OutputObjectDefinition(json_schema={"type": "object"})


def profile_of(model: Model) -> ModelProfile:
    """Return what Pydantic AI knows of a model; nothing of one that stands for several."""
    try:
        return model.profile
    except NotImplementedError:
        return ModelProfile()


def known_options(model: Model) -> frozenset[str]:
    """Return the options that reach the model's provider."""
    ignored: frozenset[str] = frozenset(model.unsupported_settings)
    known = {option for option, setting in SETTINGS.items() if setting not in ignored}
    if not profile_of(model).get("supports_thinking", False):
        known.discard("reasoning_effort")
    return frozenset({*known, "strict"})


def known_files(model: Model) -> frozenset[FileKind]:
    """Return which kinds of files the model takes; a text goes among the words."""
    profile = profile_of(model)
    types = profile.get("supported_document_media_types", frozenset({PDF_TYPE}))
    taken: dict[FileKind, bool] = {
        "text": True,
        "images": profile.get("supports_image_input", True),
        "pdf": profile.get("supports_document_input", True) and PDF_TYPE in types,
        "audio": profile.get("supports_audio_file_input", True),
    }
    return frozenset(kind for kind, takes in taken.items() if takes)


def tier_problem(llm: LLM) -> str:
    """Return why the service tier of `llm` cannot be asked for; empty where it can."""
    if llm.service_tier is None or llm.service_tier in TIERS:
        return ""
    return f"Pydantic AI knows no llm.service_tier {llm.service_tier!r}, only {', '.join(sorted(TIERS))}"


def settings_of(request: ModelRequest, model: Model, output_max: int, headers: Mapping[str, str]) -> ModelSettings:
    """Return the settings of a request; they precede those that the model was made with."""
    llm, settings = request.llm, dict[str, Any]()
    for option, setting in SETTINGS.items():
        value: Any = getattr(llm, option)
        if value is not None:
            settings[setting] = value
    if "thinking" in settings:
        settings["thinking"] = False if llm.reasoning_effort == "none" else llm.reasoning_effort
    if llm.stop is not None:
        settings["stop_sequences"] = list(llm.stop)
    if not request.tools:  # without tools some providers refuse both
        settings.pop("tool_choice", None)
        settings.pop("parallel_tool_calls", None)
    elif (choice := llm.tool_choice) is not None:
        tool = named_tool(choice)
        settings["tool_choice"] = choice if tool is None else [tool]
    if llm.extra is not None:
        settings["extra_body"] = dict(llm.extra)
    if headers:
        settings["extra_headers"] = dict(headers)
    if profile_of(model).get("supports_cache", False) and "cache" not in (model.settings or {}):
        settings["cache"] = True
    # retries are the caller's
    return cast("ModelSettings", {**settings, "max_tokens": output_max, "max_retries": 0})


def parameters_of(request: ModelRequest, model: Model) -> ModelRequestParameters:
    """Return the prompt, the tools and the answer's form of a request."""
    strict = bool(request.llm.strict)
    mode, form = _form(request.response_format, profile_of(model))
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description or None,
                parameters_json_schema=dict(tool.parameters),
                strict=strict and can_be_strict(tool.parameters),
            )
            for tool in request.tools
        ],
        output_mode=mode,
        output_object=form,
        instruction_parts=[InstructionPart(request.system_prompt)] if request.system_prompt else None,
    )


def _form(form: ResponseFormat, profile: ModelProfile) -> tuple[Any, OutputObjectDefinition | None]:
    """Return the answer's form: enforced by the provider where it can, else asked for in the prompt."""
    match form:
        case TextFormat():
            return "text", None
        case JsonObjectFormat():
            return "prompted", JSON_OBJECT
        case JsonSchemaFormat():
            # a loose schema is held to where it can be: some providers know no looser way, and the answer is checked
            schema = OutputObjectDefinition(dict(form.json_schema), name=form.name, strict=form.strict or None)
            return ("native" if profile.get("supports_json_schema_output", False) else "prompted"), schema
