"""Which of our search attributes a namespace has, and what to do about missing ones. Asks no server."""

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
    """One of our search attributes in a namespace. `kind` is the type it should have, `actual_type` the one it has."""

    name: str
    kind: str
    state: Registration
    actual_type: str | None = None
    refusal: str = ""
    """The server's words, where it has refused something."""


def compared(registered: Mapping[str, str]) -> tuple[Attribute, ...]:
    """Return the state of our attributes in a namespace that has those `registered`: name and type."""
    return tuple(
        Attribute(name, kind, _state(kind, registered.get(name)), registered.get(name))
        for name, kind in SEARCH_ATTRIBUTES.items()
    )


def complete(attributes: Iterable[Attribute]) -> bool:
    """Return whether every attribute can be used: with one less, runs are started without any."""
    return all(each.state in USABLE for each in attributes)


def remedies(attributes: Iterable[Attribute], namespace: str) -> tuple[str, ...]:
    """Return what a person has to do, one line each, for what `holdfast setup` cannot do by itself."""
    lines: list[str] = []
    refused: list[Attribute] = []
    for each in attributes:
        match each.state:
            case Registration.OTHER_TYPE:
                rename = (
                    f"temporal operator search-attribute rename --namespace {namespace} --existing-name {each.name}"
                )
                lines.append(
                    f"{each.name} has the type {each.actual_type} but must be {each.kind}: if nothing uses it, rename "
                    f"it (`{rename} --new-name OLD_NAME`) or remove it, then run `holdfast setup` again"
                )
            case Registration.NO_ROOM:
                lines.append(
                    f"{each.name}: the server's store has no column for another {each.kind} ({each.refusal}); remove "
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
    attributes = tuple(refused)
    options = " ".join(f"--sa {each.name}={each.kind}" for each in attributes)
    tcld = f"tcld namespace search-attributes add --namespace {namespace} {options}"
    return (
        f"the server does not let us register attributes ({attributes[0].refusal}): on Temporal Cloud run `{tcld}`, or "
        f"add them on {CLOUD_UI}; on your own server, have an administrator do it"
    )


def shortcomings(attributes: Iterable[Attribute]) -> str:
    """Return in one line what is not as it should be; empty where all can be used."""
    states = {
        Registration.MISSING: "missing",
        Registration.REFUSED: "refused",
        Registration.NO_ROOM: "no column left for",
        Registration.OTHER_TYPE: "of another type",
    }
    by_state = {words: [each.name for each in attributes if each.state is state] for state, words in states.items()}
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in by_state.items() if names)


def _state(kind: str, actual: str | None) -> Registration:
    if actual is None:
        return Registration.MISSING
    return Registration.THERE if actual == kind else Registration.OTHER_TYPE
