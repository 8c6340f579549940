"""An MCP server of the protocol's first era whose tools stand in a file, read anew for each list. Reads stdin.

`python catalog_server.py FILE LEDGER`: FILE holds the tools as JSON; LEDGER gets a line per call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE, LEDGER = (Path(each) for each in sys.argv[1:3])


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "catalog", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": json.loads(FILE.read_text(encoding="utf-8"))}
        case "tools/call":
            with LEDGER.open("a", encoding="utf-8") as ledger:
                ledger.write(f"{params['name']} {json.dumps(params.get('arguments') or {})}\n")
            return {"content": [{"type": "text", "text": f"{params['name']} has run"}]}
        case _:
            return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = result_of(message["method"], message.get("params") or {})
    error = {"error": {"code": -32601, "message": "unknown method"}}
    body = error if answer is None else {"result": answer}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
    sys.stdout.flush()
