"""Which of our search attributes a namespace has, and what to do about those that it lacks. Asks no server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES

CLOUD_UI: Final = "its page under Namespaces in https://cloud.temporal.io, Custom Search Attributes"


class Registration(StrEnum):
    """What there is of an attribute in a namespace, or what became of registering it."""

    THERE = "there"
    REGISTERED = "registered"
    MISSING = "missing"
    OTHER_TYPE = "other_type"
    """Something else has the name; it cannot be used until that is renamed or removed."""
    NO_ROOM = "no_room"
    """All columns that the server's store has for the type are taken by others' attributes."""
    REFUSED = "refused"
    """The server does not let us register anything."""


USABLE: Final = frozenset({Registration.THERE, Registration.REGISTERED})


@dataclass(frozen=True, slots=True)
class Attribute:
    """One of our search attributes in a namespace. `kind` is the type it should have, `found` the one it has."""

    name: str
    kind: str
    state: Registration
    found: str | None = None
    said: str = ""
    """The server's words, where it has refused something."""


def compared(known: Mapping[str, str]) -> tuple[Attribute, ...]:
    """Return what there is of our attributes where the namespace has those `known`: name and type."""
    return tuple(
        Attribute(name, kind, _state(kind, known.get(name)), known.get(name))
        for name, kind in SEARCH_ATTRIBUTES.items()
    )


def complete(found: Iterable[Attribute]) -> bool:
    """Return whether every attribute can be used: with one less, runs are started without any."""
    return all(each.state in USABLE for each in found)


def remedies(found: Iterable[Attribute], namespace: str) -> tuple[str, ...]:
    """Return what a person has to do, one line each, for what `holdfast setup` cannot do by itself."""
    lines: list[str] = []
    refused: list[Attribute] = []
    for each in found:
        match each.state:
            case Registration.OTHER_TYPE:
                rename = (
                    f"temporal operator search-attribute rename --namespace {namespace} --existing-name {each.name}"
                )
                lines.append(
                    f"{each.name} is there as {each.found}, and must be {each.kind}: if nothing uses it, rename it "
                    f"(`{rename} --new-name OLD_NAME`) or remove it, then run `holdfast setup` again"
                )
            case Registration.NO_ROOM:
                lines.append(
                    f"{each.name}: the server's store has no column for a further {each.kind} ({each.said}); remove "
                    "an attribute that nobody uses (`temporal operator search-attribute list`), use a namespace of its "
                    "own (`holdfast setup --namespace NAME --create-namespace`), or a server with Elasticsearch"
                )
            case Registration.REFUSED:
                refused.append(each)
            case _:
                pass
    return (*lines, *([refused_remedy(refused, namespace)] if refused else []))


def refused_remedy(refused: Iterable[Attribute], namespace: str) -> str:
    """Return what to do where the server lets nobody register attributes through its API, as Temporal Cloud."""
    wanted = tuple(refused)
    options = " ".join(f"--sa {each.name}={each.kind}" for each in wanted)
    tcld = f"tcld namespace search-attributes add --namespace {namespace} {options}"
    return (
        f"the server does not let us register attributes ({wanted[0].said}): on Temporal Cloud run `{tcld}`, or add "
        f"them on {CLOUD_UI}; on a server of your own let one do it who may administer it"
    )


def told_of(found: Iterable[Attribute]) -> str:
    """Return in one line what is not as it should be; empty where all can be used."""
    states = {
        Registration.MISSING: "missing",
        Registration.REFUSED: "refused",
        Registration.NO_ROOM: "no column left for",
        Registration.OTHER_TYPE: "of another type",
    }
    by_state = {words: [each.name for each in found if each.state is state] for state, words in states.items()}
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in by_state.items() if names)


def _state(kind: str, found: str | None) -> Registration:
    if found is None:
        return Registration.MISSING
    return Registration.THERE if found == kind else Registration.OTHER_TYPE
