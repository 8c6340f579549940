"""Tools of an OpenAPI document, called against a real HTTP server, and what the model sees of them."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from holdfast import Toolset
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.remote_tool_checks import check_schemas
from holdfast.testing import ScriptedModel, call, say
from holdfast.tools import from_openapi, openapi_document, openapi_requests, openapi_schemas, openapi_tools
from tests.serving import Serve
from tests.tools.pets import DOCUMENT, PetServer, pet_server
from tests.workflows.histories import history_of

PICTURE = "(200 OK, 2 bytes of image/png, which are not shown)"
SECRET = "s3cret-value-of-the-test"  # noqa: S105  # none


def the(toolset: Toolset, name: str) -> AnyTool:
    return next(each for each in toolset.tools if each.name == name)


def changed(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    return {**copy.deepcopy(DOCUMENT), **fields}


def one(operation: dict[str, Any], path: str = "/x", method: str = "get", **fields: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """Return a document with one operation."""
    whole = {"operationId": "one", "responses": {"200": {"description": "d"}}, **operation}
    return changed(paths={path: {method: whole}}, **fields)


async def ran(toolset: Toolset, name: str, **arguments: Any) -> AgentState:  # noqa: ANN401  # JSON
    model = ScriptedModel([call(name, **arguments), say("done")])
    agent = AgentDefinition(name="caller", tools="all")
    return await LocalDriver(agent, model=model, tools=toolset.tools).execute("Do it.")


async def answered(toolset: Toolset, name: str, **arguments: Any) -> str:  # noqa: ANN401  # JSON
    """Return what the model was told of one call."""
    state = await ran(toolset, name, **arguments)
    assert state.status is ExecutionStatus.COMPLETED
    return state.steps[0].tool_executions[0].answer.text


def pets(server: PetServer, headers: dict[str, Any] | None = None) -> Toolset:
    return from_openapi(DOCUMENT, server.url, headers=headers or {"X-Api-Key": SECRET})


# --- what the model sees


def test_each_operation_becomes_a_tool_with_one_schema(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.tools"):
        toolset = from_openapi(DOCUMENT, headers={"x-api-key": SECRET})
    assert [each.name for each in toolset.tools] == ["pets_get", "createPet", "post_login"]
    assert "upload (PUT /photos): its body is multipart/form-data; JSON and forms are sent" in caplog.text
    get = the(toolset, "pets_get")
    assert get.schema.description == "Find a pet.\n\nFinds one pet."
    assert get.source == "GET /pets/{pet-id} of 'Pets'"
    properties: Any = get.schema.parameters["properties"]
    assert list(properties) == ["pet-id", "fields", "tags", "filter", "page_size", "X-Trace"]
    assert properties["pet-id"] == {"type": "string", "description": "which one\n\nPattern: ^[a-z./ %]+$"}
    assert get.schema.parameters["required"] == ["pet-id"]
    assert SECRET not in json.dumps([dict(each.schema) for each in toolset.tools], default=str)
    check_schemas(toolset.tools)


def test_what_a_schema_refers_to_stands_in_it_once_also_in_a_circle() -> None:
    create = the(from_openapi(DOCUMENT), "createPet")
    assert create.schema.parameters == {
        "type": "object",
        "properties": {"body": {"$ref": "#/$defs/Pet"}},
        "additionalProperties": False,
        "required": ["body"],
        "$defs": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": ["string", "null"]},
                    "age": {"type": "integer", "exclusiveMinimum": 0},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
                    "example": {"type": "string", "enum": ["a", "b"]},
                },
            }
        },
    }
    fits: dict[str, Any] = {"body": {"name": None, "children": [{"name": "a", "children": [{"name": "b"}]}]}}
    assert argument_problem(create, fits) is None
    misfit: dict[str, Any] = {"body": {"name": "a", "children": [{"name": "b", "age": 0}]}}
    assert argument_problem(create, misfit) == "$.body.children[0].age: 0 is less than or equal to the minimum of 0"


def test_calls_that_change_something_are_never_begun_twice_unless_they_are_said_to_be_harmless() -> None:
    toolset = from_openapi(DOCUMENT, timeout_seconds=7)
    get, create = the(toolset, "pets_get"), the(toolset, "createPet")
    assert (get.traits.idempotent, get.traits.at_most_once, get.traits.timeout_seconds) == (True, False, 7)
    assert (create.traits.idempotent, create.traits.at_most_once, create.traits.attempts_max) == (False, True, 1)
    assert the(from_openapi(DOCUMENT, idempotent=True), "createPet").traits.idempotent


@pytest.mark.parametrize("form", ["file", "path", "json", "yaml"])
def test_a_document_is_a_file_or_a_text_in_json_or_yaml(form: str, tmp_path: Path) -> None:
    file = tmp_path / "pets.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))
    sources: dict[str, str | Path] = {"file": file, "path": str(file), "yaml": file.read_text()}
    source = sources.get(form, json.dumps(DOCUMENT))
    assert [dict(each.schema) for each in from_openapi(source).tools] == [
        dict(each.schema) for each in from_openapi(DOCUMENT).tools
    ]


def test_yaml_with_numbers_as_names_and_dates_is_read_as_json() -> None:
    text = """
openapi: 3.1.0
info: {title: T, version: 2026-11-24}
servers: [{url: "https://{where}.invalid", variables: {where: {default: here}}}]
paths:
  /x:
    get:
      operationId: x
      parameters: [{name: day, in: query, schema: {type: [string, "null"], default: 2026-11-24}}]
      responses: {200: {description: d}}
"""
    (made,) = from_openapi(text).tools
    assert made.schema.parameters["properties"] == {"day": {"type": ["string", "null"], "default": "2026-11-24"}}


def test_operations_are_chosen_by_name_or_place() -> None:
    assert [each.name for each in from_openapi(DOCUMENT, include=["pets*"]).tools] == ["pets_get"]
    assert [each.name for each in from_openapi(DOCUMENT, include=["POST *"]).tools] == ["createPet", "post_login"]
    with pytest.raises(InvalidInput, match="the operation 'createPets', which is not there; did you mean 'createPet'"):
        from_openapi(DOCUMENT, include=["createPets"])
    with pytest.raises(InvalidInput, match=r"upload \(PUT /photos\): its body is multipart/form-data"):
        from_openapi(DOCUMENT, include=["upload"])


def test_names_are_legal_and_told_apart() -> None:
    operation = {"responses": {"200": {"description": "d"}}}
    paths = {
        "/a": {"get": {**operation, "operationId": "a b"}, "put": {**operation, "operationId": "a/b"}},
        "/inference": {"get": {**operation, "operationId": "inference"}},
        "/" + "x" * 80: {"get": operation, "post": {**operation, "operationId": "y" * 80}},
    }
    names = [each.name for each in from_openapi(changed(paths=paths)).tools]
    assert names == ["a_b", "a_b_2", "inference_2", f"get_{'x' * 60}", "y" * 64]


# --- documents that are refused


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"openapi": "2.0"}, "`openapi` is 2.0; 3.0 and 3.1 are read"),
        ({}, "`openapi` is missing"),
        ({"openapi": "3.1.0"}, r"no valid document of OpenAPI 3.1.0: info: Field required"),
        ("a: [", "is neither JSON nor YAML|cannot be read"),
        ("a:\n  b: [", "is neither JSON nor YAML"),
        ("a: &x\n  b: 1\nc: *x\n", "aliases"),
        ("https://pets.invalid/openapi.json", "is an address; download it"),
        ("no/such/file.yaml", r"'no/such/file.yaml' cannot be read \(FileNotFoundError\)"),
        ({"openapi": "3.1.0", "x": object()}, "is not JSON"),
    ],
)
def test_what_is_no_document_is_refused(document: Any, problem: str) -> None:  # noqa: ANN401  # anything
    with pytest.raises(InvalidInput, match=problem):
        from_openapi(document)


UNUSABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"parameters": [{"$ref": "other.yaml#/P"}]}, "/x", "leads out of the document"),
    ({"parameters": [{"$ref": "#/components/parameters/None"}]}, "/x", "leads to nothing"),
    (
        {"parameters": [{"name": "c", "in": "cookie", "required": True, "schema": {}}]},
        "/x",
        "the cookie 'c'",
    ),
    ({}, "/x/{id}", r"its path has \['id'\]"),
    ({"servers": [{"url": "/relative"}]}, "/x", "give base_url="),
    ({"servers": [{"url": "https://me:pass@pets.invalid"}]}, "/x", "holds a user or password"),
]


@pytest.mark.parametrize(("operation", "path", "problem"), UNUSABLE)
def test_an_operation_that_cannot_be_offered_is_refused_by_its_name(
    operation: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        from_openapi(one(operation, path), include=["one"])
    assert str(caught.value).startswith(f"one (GET {path}): ")
    with pytest.raises(InvalidInput, match="none of the operations of Pets can be offered; the first: one"):
        from_openapi(one(operation, path))


def test_references_that_never_end_are_refused() -> None:
    loop = {"parameters": {"A": {"$ref": "#/components/parameters/A"}}}
    with pytest.raises(InvalidInput, match="more than 16 references lead on"):
        from_openapi(one({"parameters": [{"$ref": "#/components/parameters/A"}]}, components=loop))


def test_what_grows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {}
    for _ in range(openapi_schemas.SCHEMA_DEPTH_MAX + 1):
        deep = {"type": "array", "items": deep}
    for schema, problem in (
        (deep, "nested more than 48 levels deep"),
        ({"enum": ["x" * openapi_schemas.SCHEMA_BYTES_MAX]}, "more than 65,536 bytes of JSON Schema"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            from_openapi(one({"parameters": [{"name": "q", "in": "query", "schema": schema}]}), include=["one"])
    monkeypatch.setattr(openapi_tools, "OPERATIONS_MAX", 2)
    with pytest.raises(InvalidInput, match="4 operations would become tools, at most 2 can; choose some with include"):
        from_openapi(DOCUMENT)
    file = tmp_path / "large.json"
    file.write_text("{}")
    monkeypatch.setattr(openapi_document, "DOCUMENT_BYTES_MAX", 1)
    for source in (file, "{}"):
        with pytest.raises(InvalidInput, match="has more than 1 "):
            from_openapi(source)


# --- calls


async def test_arguments_go_where_the_document_says_and_the_key_goes_along() -> None:
    async with pet_server() as server:
        arguments: dict[str, Any] = {
            "pet-id": "a/b %",
            "fields": ["name", "age"],
            "tags": ["x", "y"],
            "filter": {"kind": "cat"},
            "page_size": 3,
            "X-Trace": "t",
        }
        state = await ran(pets(server), "pets_get", **arguments)
    (request,) = server.requests
    query = "fields=name&fields=age&tags=x%2Cy&filter%5Bkind%5D=cat&page%5Bsize%5D=3"
    assert request.raw_path == f"/v1/pets/a%2Fb%20%25?{query}"
    (execution,) = state.steps[0].tool_executions
    assert execution.result is not None
    assert json.loads(execution.result)["path"] == request.raw_path
    sent = {name: request.headers.getall(name) for name in ("Idempotency-Key", "X-Api-Key", "X-Trace")}
    assert sent == {"Idempotency-Key": [execution.id], "X-Api-Key": [SECRET], "X-Trace": ["t"]}
    assert SECRET not in state.to_json().decode()


async def test_a_body_is_sent_as_json_or_as_a_form() -> None:
    async with pet_server() as server:
        toolset = pets(server)
        await answered(toolset, "createPet", body={"name": "Rex", "age": 3})
        await answered(toolset, "post_login", body={"user": "me & you", "roles": ["a", "b"]})
    assert [each.content_type for each in server.requests] == ["application/json", "application/x-www-form-urlencoded"]
    assert json.loads(server.bodies[0]) == {"name": "Rex", "age": 3}
    assert server.bodies[1] == "user=me+%26+you&roles=a&roles=b"


async def test_arguments_that_break_the_schema_are_never_sent() -> None:
    async with pet_server() as server:
        toolset = pets(server)
        assert await answered(toolset, "pets_get", **{"pet-id": "a", "page_size": 0}) == (
            "Error (InvalidArguments): $.page_size: 0 is less than the minimum of 1"
        )
        assert "cannot stand in a path" in await answered(toolset, "pets_get", **{"pet-id": ".."})
        assert "no header can hold" in await answered(toolset, "pets_get", **{"pet-id": "a", "X-Trace": "a\r\nb: c"})
    assert server.requests == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.Response(text="plain words"), "plain words"),
        (web.json_response([1, {"a": None}]), '[1,{"a":null}]'),
        (web.Response(body=b'{"a": 1}', content_type="application/hal+json"), '{"a":1}'),
        (web.Response(body=b"{broken", content_type="application/json"), "{broken"),
        (web.Response(status=204), "(204 No Content, no content)"),
        (
            web.Response(body=b"\x00\xff", content_type="image/png"),
            PICTURE,
        ),
        (web.Response(body=b"x", headers={"Content-Type": "text/plain; charset=nonsense"}), "x"),
        (
            web.Response(status=404, text="no such pet"),
            "Error (HttpError): GET /pets/{pet-id}: 404 Not Found: no such pet",
        ),
        (web.Response(status=500), "Error (HttpError): GET /pets/{pet-id}: 500 Internal Server Error"),
        (
            web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"}),
            "Error (HttpError): GET /pets/{pet-id}: 302 Found: it leads to http://elsewhere.invalid/",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_the_model_sees_what_the_server_answers(answer: web.Response, said: str) -> None:
    async with pet_server() as server:
        server.answer = answer
        assert await answered(pets(server), "pets_get", **{"pet-id": "a"}) == said


async def test_long_answers_are_cut_and_huge_ones_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pet_server() as server:
        server.answer = web.Response(status=400, text="x" * 100_000)
        said = await answered(pets(server), "pets_get", **{"pet-id": "a"})
        assert 500 < len(said) < ERROR_CHARS_MAX
        monkeypatch.setattr(openapi_requests, "ANSWER_BYTES_MAX", 10)
        server.answer = web.Response(text="x" * 11)
        said = await answered(pets(server), "createPet", body={"name": "Rex"})
        assert said == "Error (HttpError): POST /pets: 200 OK, with more than 10 bytes, which were not read"


async def test_a_call_without_an_answer_is_repeated_only_where_that_is_harmless() -> None:
    async with pet_server() as server:
        server.drops = 1
        assert "/v1/pets/a" in await answered(pets(server), "pets_get", **{"pet-id": "a"})
        assert len({each.headers["Idempotency-Key"] for each in server.requests}) == 1
        assert len(server.requests) == 2
        server.drops = 1
        said = await answered(pets(server), "createPet", body={"name": "Rex"})
        assert said.startswith("Error (HttpUnreachable): POST /pets: no answer (")
        assert said.endswith("; whether the server has acted on it is not known")
        assert len(server.requests) == 3


# --- headers


async def _from_vault() -> str:
    return f"Bearer {SECRET}"


def _broken() -> str:
    raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    "value",
    [f"Bearer {SECRET}", "Bearer ${PETS_TOKEN}", lambda: f"Bearer {SECRET}", _from_vault],
    ids=["text", "variable", "function", "coroutine"],
)
async def test_a_secret_header_is_made_in_the_worker_and_struck_out_of_what_comes_back(
    value: Any,  # noqa: ANN401  # of all kinds
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PETS_TOKEN", SECRET)
    async with pet_server() as server:
        toolset = pets(server, headers={"Authorization": value, "X-Api-Key": "k"})
        for status in (200, 403):
            server.answer = web.Response(status=status, text=f"you sent Bearer {SECRET}, that is {SECRET}")
            state = await ran(toolset, "pets_get", **{"pet-id": "a"})
            assert "you sent *****, that is *****" in state.steps[0].tool_executions[0].answer.text
            assert SECRET not in state.to_json().decode()
    assert [each.headers["Authorization"] for each in server.requests] == [f"Bearer {SECRET}"] * 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Bearer ${PETS_TOKEN}", "the header 'Authorization' needs the variable PETS_TOKEN, which the worker does not"),
        (_broken, "the header 'Authorization' cannot be made: its function raised RuntimeError"),
        (lambda: f"{SECRET}\n", "the header 'Authorization' has characters that no header can hold"),
    ],
    ids=["variable", "raising", "unprintable"],
)
async def test_a_header_that_cannot_be_made_is_an_error_without_its_value(value: Any, said: str) -> None:  # noqa: ANN401  # as above
    async with pet_server() as server:
        answer = await answered(pets(server, headers={"Authorization": value}), "createPet", body={"name": "a"})
        assert answer.startswith(f"Error (HeaderMissing): {said}")
        assert SECRET not in answer
    assert server.requests == []


# --- on Temporal


@pytest.mark.temporal
async def test_on_temporal_no_history_has_the_value_of_a_header(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_TOKEN", SECRET)
    async with pet_server() as server:
        toolset = pets(server, headers={"Authorization": "Bearer ${PETS_TOKEN}"})
        arguments = {"body": {"name": "Rex"}}
        async with serve([call("createPet", **arguments), say("done")], toolset.tools) as served:
            result = await served.client.run(AgentDefinition(name="caller", tools="all"), "Do it.")
            history = await history_of(served.client, result.state.running.execution_id)
    (request,) = server.requests
    (execution,) = result.state.steps[0].tool_executions
    assert execution.value == {"path": "/v1/pets", "body": '{"name":"Rex"}'}
    assert request.headers["Authorization"] == f"Bearer {SECRET}"
    assert request.headers["Idempotency-Key"] == execution.id
    kept = b"".join((*(event.SerializeToString() for event in history.events), result.state.to_json()))
    assert b"Rex" in kept
    assert SECRET.encode() not in kept
