"""An MCP server of the protocol's first era, written by hand, that misbehaves as its argument says. Reads stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "description": f"tool {name}", "inputSchema": OBJECT, **fields}


def tools(cursor: str | None) -> dict[str, Any]:  # noqa: C901, PLR0912  # one case per mode
    match MODE:
        case "duplicates":
            return {"tools": [tool("same", description="first"), tool("same", description="second"), tool("other")]}
        case "many":
            return {"tools": [tool(f"tool_{number}") for number in range(300)]}
        case "crowded":
            return {"tools": [tool(f"tool_{number}") for number in range(5_000)]}
        case "heavy":
            return {"tools": [tool(f"t{n}", inputSchema={**OBJECT, "description": "y" * 60_000}) for n in range(90)]}
        case "fifty megabytes":
            return {"tools": [tool("first"), tool("second", description="z" * 50_000_000)]}
        case "list_changed flood":
            for _ in range(5_000):
                send({"method": "notifications/tools/list_changed"})
            return {"tools": [tool("calm")]}
        case "junk in the list":
            sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "result": {"tools": [\n')
            return {"tools": [tool("after")]}
        case "shapeless list":
            return {"tools": "none"}
        case "array":
            return {"tools": [tool("good"), tool("list", inputSchema={"type": "array"})]}
        case "endless":
            page = int(cursor or 0)
            return {"tools": [tool(f"tool_{page}")], "nextCursor": str(page + 1)}
        case "odd":
            return {
                "tools": [
                    tool("with space and ümlaut"),
                    tool("x" * 90),
                    tool("nan", inputSchema={**OBJECT, "default": float("nan")}),
                    tool("broken", inputSchema={"type": "object", "properties": {"a": {"type": "no such"}}}),
                    tool("far", inputSchema={"type": "object", "$ref": "https://example.org/schema"}),
                    tool("big", inputSchema={"type": "object", "description": "y" * 70_000}),
                    tool("long", description="z" * 100_000),
                ]
            }
        case _:
            output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            return {"tools": [tool("go", outputSchema=output)]}


def say(identity: object, text: str, value: object) -> None:
    content = [{"type": "text", "text": text}]
    send({"id": identity, "result": {"content": content, "structuredContent": value}})


def answer(identity: object) -> None:  # noqa: C901, PLR0912, PLR0915  # one case per mode
    match MODE:
        case "misfit":
            send(
                {
                    "id": identity,
                    "result": {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"n": "x"}},
                }
            )
        case "flood":
            for number in range(5_000):
                send({"method": "notifications/message", "params": {"level": "info", "data": f"line {number}"}})
            send(
                {
                    "id": identity,
                    "result": {"content": [{"type": "text", "text": "after"}], "structuredContent": {"n": 1}},
                }
            )
        case "huge":
            text = "x" * 50_000_000
            send(
                {"id": identity, "result": {"content": [{"type": "text", "text": text}], "structuredContent": {"n": 1}}}
            )
        case "half a pair":
            say(identity, "cut \ud83d", {"n": 1})
        case "many parts":
            lines = [{"type": "text", "text": str(number)} for number in range(200_000)]
            send({"id": identity, "result": {"content": lines, "structuredContent": {"n": 1}}})
        case "junk":
            sys.stdout.write("this is no JSON\n")
            send(
                {
                    "id": identity,
                    "result": {"content": [{"type": "text", "text": "after"}], "structuredContent": {"n": 1}},
                }
            )
        case "shapeless":
            send({"id": identity, "result": {"content": "this is no list"}})
        case "forged":
            send({"id": identity, "error": {"code": -32603, "message": "Session terminated"}})
        case "declined":
            send({"id": identity, "error": {"code": -32000, "message": "card declined"}})
        case "refusal":
            send({"id": identity, "error": {"code": -32099, "message": "not today"}})
        case "media":
            parts = [
                {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                {"type": "image", "data": "???", "mimeType": "image/png"},
                {"type": "resource_link", "name": "report", "uri": "file:///report"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            ]
            send({"id": identity, "result": {"content": parts, "structuredContent": {"n": 1}}})
        case "asks":
            for number in range(2):
                about = {"message": f"What is your name ({number})?", "requestedSchema": OBJECT}
                send({"id": f"question-{number}", "method": "elicitation/create", "params": about})
            said = [json.loads(sys.stdin.readline())["result"]["action"] for _ in range(2)]
            say(identity, f"they said {' and '.join(said)}", {"n": 1})
        case "asks without end":
            for number in range(100_000):
                send({"id": f"ping-{number}", "method": "ping"})
            time.sleep(3600)
        case "broken notifications":
            for _ in range(200):
                send({"method": "notifications/progress", "params": {"progressToken": None, "of": os.environ["KEY"]}})
            say(identity, "after", {"n": 1})
        case "secret":
            sys.stdout.write(f"{'x' * 190} {os.environ['KEY']}\n")
            send({"id": identity, "result": {"content": f"Bearer {os.environ['KEY']}"}})
        case "deaf":
            os.close(0)
            say(identity, str(os.getpid()), {"n": 1})
            time.sleep(600)
        case "late":
            time.sleep(2)
            say(identity, "late", {"n": 1})
        case "chatty":
            sys.stderr.write(f"my key is {os.environ['KEY']}\n" + "z" * 100_000 + "\n" + "noise\n" * 5_000)
            sys.stderr.flush()
            say(identity, "after", {"n": 1})
        case "family":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            say(identity, str(child.pid), {"n": child.pid})
        case _:  # silent
            time.sleep(3600)


for line in sys.stdin:
    message: dict[str, Any] = json.loads(line)
    identity = message.get("id")
    parameters: dict[str, Any] = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            about = {"name": "odd", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
            send({"id": identity, "result": result})
        case "tools/list":
            send({"id": identity, "result": tools(parameters.get("cursor"))})
        case "tools/call":
            answer(identity)
        case _ if identity is not None:
            send({"id": identity, "error": {"code": -32601, "message": "unknown method"}})
        case _:
            pass
