"""The forms in which Holdfast stores what it reads again later, each with its version. Reads and writes nothing.

A version is the field `format` of what is stored; without that field it is the first. It is raised whenever the shape
changes (`tests/storage/test_stored_forms.py` sees to it), since older readers refuse fields that they do not know. Then
its older versions must stay readable, and are brought into the new shape here. docs/storage.md lists the forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, JsonValue, ValidationError

from holdfast.core.base.errors import FormNewer

FORMAT: Final = "format"
"""The name of the field with a form's version."""

FIRST: Final = 1
"""The version of what names none."""

VERSION_CHARS_MAX: Final = 40
"""How much of a version that is no number of ours an error shows."""


@dataclass(frozen=True, slots=True)
class StoredForm:
    """One form: what it is called in errors, and the version that is written and read here."""

    name: str
    version: int = FIRST

    def check(self, data: bytes | str | Mapping[str, object], place: str = "what is stored") -> None:
        """Raise FormNewer for data of a later version; `place` begins its text. Anything else passes, also no JSON."""
        if isinstance(data, Mapping):
            found = data.get(FORMAT, FIRST)
        else:
            try:
                found = _Versioned.model_validate_json(data).format
            except ValidationError:
                return
        if isinstance(found, int) and found > self.version:
            raise FormNewer(
                f"{place} is {self.name} of format {found!r:.{VERSION_CHARS_MAX}}, and this Holdfast reads format "
                f"{self.version}: a newer Holdfast wrote it, and nothing was changed; use that version, or a later one"
            )


class _Versioned(BaseModel):
    """What every version of every form has."""

    format: JsonValue = FIRST


AGENT_STATE: Final = StoredForm("an agent's state")
"""As JSON for whoever keeps it (`holdfast.core.agent.state_json`), and the head of a snapshot."""

EVENT: Final = StoredForm("an event")
"""As delivered (`holdfast.core.wire.event_envelope`); its version is the field `version`."""

RUN_INPUT: Final = StoredForm("the input of a run")
SESSION_INPUT: Final = StoredForm("the input of a session")
SINK_INPUT: Final = StoredForm("the input of a sink's delivery")
SNAPSHOT: Final = StoredForm("a snapshot of an agent")
RECORD: Final = StoredForm("a record of a run")
SESSION: Final = StoredForm("a saved session")
CATALOG: Final = StoredForm("a catalog of MCP tools")
MANIFEST: Final = StoredForm("a manifest of a workspace")
RESULT_PARTS: Final = StoredForm("the list of a result's parts")
SINK_POSITION: Final = StoredForm("the position of a sink")
STORE_USER: Final = StoredForm("the registration of a namespace")


def is_first(version: int) -> bool:
    """For `Field(exclude_if=is_first)`: what is stored is then as without the field."""
    return version == FIRST
