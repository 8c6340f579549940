"""YAML files that list things by name below one field, as `mcp.yaml` and `models.yaml` do. Knows no such thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from holdfast.core.base.bounds import REPORT_CHARS_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.field_errors import field_problems
from holdfast.core.base.safe_text import clamped, printable

SHOWN_CHARS_MAX: Final = 80
"""How much of a wrong name an error repeats."""

YAML_ERROR_CHARS_MAX: Final = 300
"""How much of the parser's own error is repeated."""

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class EntryFile(Generic[EntryT]):
    """How such a file is read.

    `field` is the one that lists the entries, and what they are called (`servers`); `variable` the environment variable
    that names the file, `default` the file without one. `form` says how to write it, `whole` what an entry is called in
    an error about all of it. `entry` makes an entry of its name and fields; it raises InvalidInput, or ValidationError
    of the type `checked`.
    """

    field: str
    variable: str
    default: Path
    form: str
    bytes_max: int
    entries_max: int
    entry: Callable[[str, object], EntryT]
    checked: type[BaseModel]
    whole: str = "arguments"

    def read(self, file: Path | None) -> dict[str, EntryT]:
        """Return the entries of the file by name; without a file, those of the default one, if that exists.

        Raises InvalidInput with every problem in one line.
        """
        path = file or self.default
        if file is None and not path.exists():
            return {}
        try:
            with path.open("rb") as opened:
                text = opened.read(self.bytes_max + 1)
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read: {error.strerror}; {self.form}") from None
        if len(text) > self.bytes_max:
            raise InvalidInput(f"{path}: is larger than {self.bytes_max:,} bytes; no list of {self.field} is")
        return self.parsed(text, str(path))

    def given(
        self, given: str | Path | Mapping[str, Any] | None, where: str, environment: Mapping[str, str]
    ) -> dict[str, EntryT]:
        """Return the entries that a program gives; by default those of the variable's file, else of the default one.

        `where` is what errors call those that are no file. Raises InvalidInput with every problem in one line.
        """
        if given is None:
            given = environment.get(self.variable) or None
        if given is None or isinstance(given, str | Path):
            return self.read(None if given is None else Path(given))
        return self._checked(given, where)

    def parsed(self, text: str | bytes, where: str) -> dict[str, EntryT]:
        """Return the entries that the text of a file called `where` describes. Raises InvalidInput."""
        import yaml  # noqa: PLC0415  # most programs have no such file

        from holdfast.runtime.plain_yaml import PlainLoader  # noqa: PLC0415  # the same

        try:
            data: object = yaml.load(text, PlainLoader)  # noqa: S506  # a SafeLoader without aliases
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            told = " ".join(str(error).split())[:YAML_ERROR_CHARS_MAX]
            raise InvalidInput(f"{where}: the YAML cannot be read: {told}") from None
        whole = fields_of(data) or {}
        for unknown in (each for each in whole if each != self.field):
            raise InvalidInput(f"{where}: {self._unknown(unknown)}")
        listed = whole.get(self.field)
        if isinstance(listed, list):
            raise InvalidInput(f"{where}: `{self.field}` is a list; {self.form}")
        named = fields_of(listed)
        if not named:
            raise InvalidInput(f"{where}: names no {self.field}; {self.form}")
        return self._checked(named, where)

    def _unknown(self, name: str) -> str:
        field = f"unknown field {name[:SHOWN_CHARS_MAX]!r}"
        near = suggestion(name, [self.field])
        # without a near name it is most likely an entry, one level too high
        return f"{field}, {near}" if near.endswith("?") else f"{field}; {self.form}"

    def _checked(self, named: Mapping[str, object], where: str) -> dict[str, EntryT]:
        if len(named) > self.entries_max:
            raise InvalidInput(f"{where}: names {len(named)} {self.field}, at most {self.entries_max} are allowed")
        entries: dict[str, EntryT] = {}
        problems: list[str] = []
        for name, fields in named.items():
            try:
                entries[name] = self.entry(name, fields)
            except ValidationError as error:
                text = field_problems(error, self.checked, self.whole, may_hold_secrets=True)
                problems.append(f"{self.field}.{name[:SHOWN_CHARS_MAX]}: {text}")
            except InvalidInput as error:
                problems.append(f"{self.field}.{name[:SHOWN_CHARS_MAX]}: {error.message}")
        if problems:
            text = " ".join(clamped("; ".join(problems), REPORT_CHARS_MAX).split())
            raise InvalidInput(f"{where}: {printable(text)}")  # names may steer a terminal
        return entries


def fields_of(value: object) -> dict[str, object] | None:
    """Return a YAML mapping with its names as texts; none for anything else."""
    if not isinstance(value, Mapping):
        return None
    return {str(name): each for name, each in cast("Mapping[object, object]", value).items()}
