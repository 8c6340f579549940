"""Findings about this machine and the model's endpoint: pure functions from facts to findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from holdfast.connection.data_directory import ServerAddress
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.extras import install_command
from holdfast.models.model_apis import OPENAI, ModelApi
from holdfast.server.doctor.findings import Finding, fine, warned, wrong

VERSIONS: Final = "versions"
DATA: Final = "data directory"
SERVED: Final = "embedded server"
AGENTS: Final = "agents"
ENCRYPTION: Final = "encryption"
MODEL: Final = "model endpoint"
ACTIVITIES: Final = "activity worker"

FREE_BYTES_WANTED: Final = 1024**3
FREE_BYTES_NEEDED: Final = 100 * 1024**2
"""With less than this a server's next checkpoint may not find room."""

SHOWN_MAX: Final = 5
"""So many names one line shows."""

NO_ENDPOINT: Final = "no endpoint is set in this environment: a worker started here could call no model"


@dataclass(frozen=True, slots=True)
class Parts:
    """Versions: ours, Python's, and those of packages; none for one that is not installed."""

    holdfast: str
    python: str
    packages: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class DataFacts:
    """A data directory. `unusable` is why nothing can be written there, or where it would be made.

    `locked_by` is who holds the lock, a server or one that starts; `damage` is what is wrong with what lies there.
    """

    path: str
    there: bool
    unusable: str | None
    free_bytes: int
    needed: bool = True
    """False where Temporal and the storage are elsewhere: then nothing is kept here."""
    locked_by: str | None = None
    address: ServerAddress | None = None
    answers: bool = False
    database_bytes: int | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """How an endpoint has answered the question for its models. `models` none: it does not say; `model` is ours.

    `broken` is what kept it from answering at all.
    """

    endpoint: str
    model: str | None
    has_key: bool
    status: int | None = None
    models: tuple[str, ...] | None = None
    broken: str | None = None
    words: str = field(default="")
    """What came with an error, without secrets."""
    api: ModelApi = OPENAI


def versions(parts: Parts, extras: Mapping[str, str]) -> Finding:
    """Judge what is installed: without the extra `temporal` nothing runs, without the model API's no worker here.

    `extras` names, for each package that a worker needs, the one that brings it.
    """
    there = ", ".join(f"{name} {number}" for name, number in parts.packages.items() if number)
    result = f"holdfast {parts.holdfast}, Python {parts.python}, {there}"
    missing = {extras[name]: name for name, number in parts.packages.items() if number is None and name in extras}
    if "temporal" in missing:
        return wrong(VERSIONS, f"{missing['temporal']} is not installed ({result})", install_command(*missing))
    if missing:
        absent = ", ".join(missing.values())
        return warned(VERSIONS, f"{absent} is missing: no worker can run here ({result})", install_command(*missing))
    return fine(VERSIONS, result)


def data_directory(facts: DataFacts) -> Finding:
    """Judge whether there is room, and leave to write it."""
    where = facts.path if facts.there else f"{facts.path} (not there yet)"
    if not facts.needed:
        return fine(DATA, f"{where}: not needed, the server and the storage are elsewhere")
    if facts.unusable is not None:
        return wrong(DATA, f"{where} cannot be written: {facts.unusable}", "choose another one: HOLDFAST_DATA_DIR")
    result = f"{where}, {_size(facts.free_bytes)} free"
    if facts.free_bytes < FREE_BYTES_NEEDED:
        return wrong(DATA, result, "make room on its disk: a server that cannot write stops")
    if facts.free_bytes < FREE_BYTES_WANTED:
        return warned(DATA, result, f"make room on its disk, {_size(FREE_BYTES_WANTED)} at least")
    return fine(DATA, result)


def embedded_server(facts: DataFacts) -> Finding:
    """Judge the server of the data directory, running or not."""
    if facts.damage is not None:
        result, _, remedy = facts.damage.partition("; ")
        return wrong(SERVED, result, remedy or "choose another data directory: HOLDFAST_DATA_DIR")
    if facts.locked_by is None:
        size = "no database yet" if facts.database_bytes is None else f"a database of {_size(facts.database_bytes)}"
        return fine(SERVED, f"not running ({size}); `holdfast dev` starts it")
    if facts.address is None:
        result = f"the directory is held by {facts.locked_by}, which has published no address"
        return warned(
            SERVED,
            result,
            "a server may be starting or ending: run this again, and end that process if nothing changes",
        )
    where = f"{facts.address.address} (pid {facts.address.pid})"
    if not facts.answers:
        return wrong(
            SERVED, f"{where} does not answer", f"end that process and run `holdfast dev`; see {facts.path}/server.log"
        )
    return fine(SERVED, f"{where}, Web UI {facts.address.ui}")


def model_endpoint(facts: EndpointFacts) -> Finding:
    """Judge how the endpoint has answered; a worker elsewhere may be configured otherwise."""
    if facts.broken is not None:
        remedy = f"is it running, is {facts.api.base_url_variable} right, does this machine reach it?"
        return wrong(MODEL, f"{facts.endpoint}: {facts.broken}", remedy)
    status = facts.status or 0
    answer = f"{facts.endpoint} answered {status}" + (f": {facts.words}" if facts.words else "")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        key = "the key is refused: check" if facts.has_key else "a key is required: set"
        return wrong(MODEL, answer, f"{key} {facts.api.key_variable} of the worker")
    if status != HTTPStatus.OK or facts.models is None:
        remedy = "it answers but lists no models; a run shows whether it works"
        return warned(MODEL, answer if status != HTTPStatus.OK else f"{facts.endpoint} lists no models", remedy)
    result = f"{facts.endpoint}, {len(facts.models)} models"
    if facts.model is None:
        return fine(MODEL, f"{result}; HOLDFAST_MODEL is not set: agents must name their model")
    if facts.model not in facts.models:
        remedy = f"{suggestion(facts.model, facts.models[:200])}; some endpoints accept names that they do not list"
        return warned(MODEL, f"{result}, none of them HOLDFAST_MODEL {facts.model[:80]!r}", remedy)
    return fine(MODEL, f"{result}, {facts.model!r} among them" + ("" if facts.has_key else "; no key is sent"))


def agents(folder: str, modules: Sequence[str], names: Sequence[str]) -> Finding:
    """Tell which agents the folder and the imported modules define; that all of them can be read is known."""
    where = " and ".join((f"{folder}/", *modules))
    if not names:
        return fine(AGENTS, f"no definition in {where}; runs can also use agents from files and programs")
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return fine(AGENTS, f"{len(names)} in {where}: {', '.join(names[:SHOWN_MAX])}{more}")


def keys(path: str, ids: Sequence[str], *, open_to_others: bool) -> Finding:
    """Judge the encryption's keys, by their ids alone: those in the file have been read."""
    result = f"keys in {path}: {', '.join(ids[:SHOWN_MAX])}; the first one encrypts"
    if open_to_others:
        return warned(ENCRYPTION, f"{result}, but others than its owner can read the file", f"run `chmod 600 {path}`")
    return fine(ENCRYPTION, result)


def no_endpoint(api: ModelApi) -> Finding:
    """Return what to say where this environment names no endpoint of the API, and nobody is known to serve."""
    remedy = f"set {api.key_variable} (or {api.base_url_variable}); a worker elsewhere has its own"
    return warned(MODEL, NO_ENDPOINT, remedy)


def served(model: Finding) -> Finding:
    """Return what is to be said of the model where a worker takes the calls already: it may be asking another one."""
    if model.result != NO_ENDPOINT:
        return model
    return fine(MODEL, "no endpoint is set in this environment, so none was checked: the worker reads its own")


def own_model(place: str) -> Finding:
    """Tell that a program of somebody's own answers: there is no endpoint to ask."""
    return fine(MODEL, f"your own model {place} (HOLDFAST_MODEL_API); its worker imports it, so it was not checked")


def _size(count: int) -> str:
    for unit, size in (("GB", 1024**3), ("MB", 1024**2)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} bytes"
