"""An HTTP API on loopback, with the OpenAPI document of it: it answers with what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.invalid/v1"}],
    "paths": {
        "/pets/{pet-id}": {
            "parameters": [{"$ref": "#/components/parameters/Id"}],
            "get": {
                "operationId": "pets.get",
                "summary": "Find a pet.",
                "description": "Finds <b>one</b> pet.",
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {
                        "name": "tags",
                        "in": "query",
                        "explode": False,
                        "schema": {"type": "array", "items": {"type": "string"}},
                    },
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "page[size]", "in": "query", "schema": {"type": "integer", "minimum": 1}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "X-Api-Key", "in": "header", "required": True, "schema": {"type": "string"}},
                    {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "It."}},
            },
        },
        "/pets": {
            "post": {
                "operationId": "createPet",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                "responses": {"201": {"description": "Made."}},
            },
        },
        "/photos": {
            "put": {
                "operationId": "upload",
                "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": {"type": "object"}}}},
                "responses": {"200": {"description": "Taken."}},
            },
        },
        "/login": {
            "post": {
                "requestBody": {
                    "content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}},
                },
                "responses": {"200": {"description": "In."}},
            },
        },
    },
    "components": {
        "parameters": {
            "Id": {
                "name": "pet-id",
                "in": "path",
                "required": True,
                "description": "which one",
                "schema": {"type": "string", "pattern": "^[a-z./ %]+$"},
            }
        },
        "requestBodies": {
            "Pet": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "nullable": True, "example": "Rex"},
                    "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                    "example": {"type": "string", "enum": ["a", "b"]},
                },
            }
        },
    },
}


@dataclass
class PetServer:
    """The server: `url` is where it listens, `requests` what came, `answer` what the next ones get."""

    url: str = ""
    requests: list[web.Request] = field(default_factory=list[web.Request])
    bodies: list[str] = field(default_factory=list[str])
    answer: web.Response | None = None
    drops: int = 0
    """How many connections are closed without an answer."""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.text())
        if self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.abort()
        if self.answer is None:
            return web.json_response({"path": request.raw_path, "body": self.bodies[-1]})
        return web.Response(
            status=self.answer.status, body=self.answer.body, headers=self.answer.headers, reason=self.answer.reason
        )


@asynccontextmanager
async def pet_server() -> AsyncGenerator[PetServer]:
    server = PetServer()
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
