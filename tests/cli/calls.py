"""Two hundred short calls of the command line, each with its exit code as docs/cli.md has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

NOBODY: Final = "00000000-0000-4000-8000-000000000000"
"""An id that nothing has."""

OLD: Final = ("--namespace", "temporal-system")
"""A server's namespace without our runs, the store the same."""

AWAY: Final = ("--address", "127.0.0.1:1")
"""Where no server is."""

Call = tuple[str, ...]

# In the words below: DONE, STOPPED and FAILED are runs that have ended so, WAITING one of which a call waits, AGENT a
# session, IDLE one that nobody talks to, CLOSED one that takes nothing any more, FOLDER a folder to write into.
# `|` separates calls of the same code.

TABLE: Final[Mapping[int, tuple[str, ...]]] = {
    0: (
        "--help | --version | --show-completion bash | --show-completion zsh | --show-completion fish",
        "run --help | session --help | session stop --help",
        "run assistant hello --detach | run assistant hello --detach --json",
        "run assistant hello | run clerk hi --json",
        "run agents/assistant.md hello --detach --json | run clerk hello --max-steps 9 --max-cost 1 --detach",
        "watch DONE | watch DONE --json",
        "stop DONE | stop DONE --json | stop STOPPED --reason why --json | stop DONE --after-step",
        "waiting | waiting --json | waiting --limit 1000 --json",
        "show DONE | show DONE --json | show STOPPED | show FAILED --json | show WAITING | show WAITING --json",
        "show DONE --transcript | show DONE --transcript --json | show DONE --transcript --full",
        "show STOPPED --steps | show FAILED --steps --json | show WAITING --steps --json",
        "show DONE --events | show WAITING --events --json | show FAILED --events | show DONE --debug",
        "show WAITING --debug --json | show FAILED --transcript --json | show AGENT | show AGENT --json",
        "show AGENT --transcript | show AGENT --debug --json | show DONE OLD | show DONE --steps --json OLD",
        "show DONE --events --json OLD | show FAILED --transcript OLD",
        "export DONE | export STOPPED --format markdown | export FAILED --format html | export WAITING --format json",
        "export DONE -o FOLDER/a.html | export DONE -o FOLDER/b.md --json | export DONE --json | export DONE OLD",
        "export FAILED -o FOLDER/c.json --json | export WAITING -o FOLDER/d.txt --format html",
        "list | list --json | list --limit 1 | list --limit 1000 --json | list --waiting | list --waiting --json",
        "list --query HoldfastAgent='nobody' | list --query HoldfastAgent='clerk' --waiting --json",
        "chat clerk | chat --id AGENT",
        "send AGENT hello | send AGENT multiply --json | send AGENT hello --no-wait --json",
        "send AGENT hello --message-id once --json | send AGENT hello --message-id once",
        "sessions | sessions --json | sessions --limit 1 --json | sessions --query HoldfastAgent='clerk' --json",
        "session show AGENT | session show AGENT --json | session show CLOSED --json | session stop IDLE --json",
        "records AGENT | records AGENT --json",
        "records AGENT --limit 1 --json | records NOBODY --json | records NOBODY",
        "record DONE | record DONE --json | record DONE --transcript | record FAILED --transcript --json",
        "fork IDLE | fork IDLE --json | fork CLOSED --json",
        "tree DONE | tree DONE --json | tree WAITING --json | tree FAILED",
        "top --once --json | setup --check --json",
    ),
    2: (
        "lsit | lsit --json | --nope | run | run assistant | show",
        "export | stop | watch | tree | record | fork | send",
        "--show-completion tcsh | --install-completion",
        "run assistent hello | run assistent hello --json",
        "run assistant '' --detach | run assistant hi --max-steps -1",
        "run assistant hi --max-steps two --json",
        "run assistant hi --id mine --json | run assistant hi --agents nowhere",
        "run nowhere.md hello --json | run assistant hi --max-cost nan --detach --json",
        "watch no/pe | watch no/pe --json | stop no/pe | show no/pe --json | export no/pe | tree no/pe --json",
        "record no/pe --json | records no/pe | fork no/pe --json | rewind no/pe DONE | session show no/pe --json",
        "show DONE --steps --events | show DONE --transcript --debug --json | show DONE --full",
        "export DONE --format pdf | export DONE --format html --json",
        "export DONE -o FOLDER | export DONE -o FOLDER/a.pdf",
        "export DONE -o FOLDER/nowhere/a.json --json",
        "list --limit 0 | list --limit 1001 --json | list --limit x | sessions --limit 0 --json | waiting --limit 0",
        "list --query nonsense | list --query nonsense --json",
        "sessions --query nonsense | sessions --query nonsense --json | records AGENT --limit 0 --json",
        "edit WAITING --arguments nope --json | approve WAITING --digest nope",
        "chat | chat --json | chat assistent | chat --id no/pe --json | send AGENT '' --json | send no/pe hello",
        "send AGENT hi --while-running wait | session shwo AGENT | session change AGENT --json",
        "session change AGENT --max-cost -1 | rewind AGENT NOBODY --steps -1 --json",
        "dev --port 65536 --json | dev --port 4000 --ui-port 4000 | worker --nope --json",
    ),
    3: (
        "run assistant hello --max-steps 1 | run assistant hello --max-steps 1 --json | watch STOPPED",
        "watch STOPPED --json",
    ),
    4: ("run refused hello | run refused hello --json | watch FAILED | watch FAILED --json",),
    5: (
        "watch nope | watch nope --json | stop nope | stop nope --json | show nope --json | export nope | tree nope",
        "record nope --json | records nope | fork nope --json | rewind nope nope | session show nope --json",
        "chat --id nope --json | send nope hello",
        "show NOBODY | show NOBODY --json | show NOBODY --steps --json | export NOBODY | export NOBODY --json",
        "watch NOBODY --json | stop NOBODY | tree NOBODY --json | record NOBODY | record NOBODY --json",
        "approve NOBODY --json | deny NOBODY | rewind IDLE NOBODY --json",
        "session show NOBODY --json | session stop NOBODY | fork NOBODY --json | show NOBODY OLD",
    ),
    6: (
        "list AWAY | list AWAY --json | show DONE AWAY --json",
        "export DONE AWAY | tree DONE AWAY | sessions AWAY --json",
        "run assistant hi AWAY --detach --json | stop DONE AWAY | waiting AWAY --json | send AGENT hi AWAY",
        "list --namespace nope --json | list --address http://127.0.0.1:1",
    ),
    7: (
        "run assistant hi --id DONE --json | run assistant hi --id DONE --detach | send CLOSED hello --json",
        "approve DONE | approve DONE --json | deny DONE call_9 | edit DONE --arguments {} --json",
        "approve WAITING call_9 --json | approve WAITING --digest 000000000000 --json",
        "fork IDLE --execution NOBODY --json | chat --id CLOSED",
        "export DONE -o FOLDER/there.json | export DONE -o FOLDER/there.json --json",
    ),
}


def calls() -> Iterator[tuple[Call, int]]:
    """Yield the words of each call, and its exit code."""
    for code, lines in TABLE.items():
        for line in lines:
            for words in line.split(" | "):
                yield tuple("" if word == "''" else word for word in words.split(" ")), code


def said(words: Call, names: Mapping[str, tuple[str, ...]]) -> Call:
    """Return the words with those in place that `names` knows."""
    found: list[str] = []
    for word in words:
        name, *rest = word.split("/", 1) if word.startswith("FOLDER") else (word,)
        found += [f"{names[name][0]}/{rest[0]}"] if rest else names.get(name, (word,))
    return tuple(found)
