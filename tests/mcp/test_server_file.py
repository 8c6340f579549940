"""`mcp.yaml`: every mistake is one line that says where it is and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.mcp.server_file import read_servers, servers_of

GOOD = """
servers:
  github:
    url: https://example.org/mcp
    headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}
    trusted: true
  files:
    command: [npx, -y, server-filesystem, /srv]
    tools: [read_file]
"""


def test_servers_are_read_by_name() -> None:
    servers = servers_of(GOOD, "mcp.yaml")
    assert list(servers) == ["github", "files"]
    assert servers["github"].tool_prefix == "github_"
    assert servers["files"].place == "npx -y server-filesystem /srv"
    assert not servers["files"].offers("write_file")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names no servers"),
        ("servers: {}", "names no servers"),
        ("server: {}", "unknown field 'server', did you mean 'servers'?"),
        ("servers: {a: {}}", "servers.a: .*a server has a `url` or a `command`; give one of them"),
        ("servers: {a: {url: 'http://x/', command: [y]}}", "give one of them"),
        ("servers: {a: {command: npx x}}", r"servers.a: `command` is a list of its words: \[npx, x\]"),
        ("servers: {a: {urls: 'http://x/'}}", "unknown field 'urls', did you mean 'url'?"),
        ("servers: {a: {url: 'ftp://x/'}}", "servers.a: url: "),
        ("servers: {a: {name: b, url: 'http://x/'}}", "unknown field 'name'"),
        ("servers: {a: [url]}", "servers.a: is not a mapping"),
        ("servers: {a b: {url: 'http://x/'}}", "servers.a b: name: "),
        ("servers: {a: {url: 'http://x/', env: {A: b}}}", "`env` means nothing for a server that is reached at a url"),
        ("servers: {a: {command: [x], headers: {A: b}}}", "`headers` means nothing for a server that is started"),
        ("servers: {a: {url: 'http://x/'}, a: {url: 'http://y/'}}", "'a'"),
        ("servers: [", "the YAML cannot be read"),
        ("servers: &a {x: *a}", "the YAML cannot be read: aliases"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=f"mcp.yaml: .*{problem}"):
        servers_of(text, "mcp.yaml")


def test_too_many_servers_are_refused() -> None:
    many = "servers:\n" + "".join(f"  s{number}: {{url: 'http://x/'}}\n" for number in range(33))
    with pytest.raises(InvalidInput, match="names 33 servers, at most 32 are allowed"):
        servers_of(many, "mcp.yaml")


def test_a_file_that_is_named_must_be_there_and_the_usual_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_servers(None) == {}
    with pytest.raises(InvalidInput, match=r"other.yaml: cannot be read: No such file"):
        read_servers(Path("other.yaml"))
    Path("mcp.yaml").write_text(GOOD)
    assert list(read_servers(None)) == ["github", "files"]
