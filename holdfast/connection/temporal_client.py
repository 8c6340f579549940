"""The connection to Temporal, for clients and workers, and the errors that say why it failed."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, TypedDict, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor, Plugin
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import GrpcCompression, PayloadLimitsConfig, RPCError, RPCStatusCode, TLSConfig

from holdfast.connection.data_directory import running_server
from holdfast.connection.rpc_errors import says_away
from holdfast.connection.settings import DEFAULT_ADDRESS, DEFAULT_NAMESPACE, Settings
from holdfast.connection.tls_remedies import naming_variables, tls_remedy, unusable
from holdfast.core.base.errors import InvalidInput, MissingPart, ServerUnavailable, ServerUnreachable
from holdfast.core.base.extras import install_command
from holdfast.runtime.process_exit import settle_at_exit
from holdfast.storage.data_converter import converter
from holdfast.storage.keys import KEY_FILE
from holdfast.telemetry.metrics_endpoint import not_listening, prometheus
from holdfast.telemetry.settings import Telemetry

T = TypeVar("T")

PAYLOADS_WARNED_BYTES: Final = 1_900_000
"""The SDK warns of payloads over 512 KB; pages of a state are larger on purpose, and the server refuses 2 MB."""

CONNECT_SECONDS: Final = 8.0
"""How long a server may take to answer before it counts as not there."""

LATE_COMPLETION: Final = "Activity not found on completion"
"""What the SDK warns of whenever a stopped run's call ends after its run: the usual course of a stop."""

ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/:@\[\]\ud800-\udfff]+):[0-9]{1,5}")
"""HOST:PORT, as the SDK wants it; not a URL."""

PROFILE: Final = "TEMPORAL_PROFILE"
"""Which profile of Temporal's configuration file is meant; the SDK reads it."""

CREATE_NAMESPACE: Final = "holdfast setup --create-namespace"

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class CoreRuntime(Runtime):
    """The SDK's runtime of a process of ours; its workers tell the server that they are there."""


@cache
def core_runtime(metrics: str | None = None) -> CoreRuntime:
    """Return the process's SDK runtime; its native core logs through Python, never to standard output.

    (A `--json` answer must stay JSON.) `metrics` is where a worker's can be read; raises PortTaken, InvalidInput.
    """
    logger = logging.getLogger("temporalio.core")
    logger.addFilter(lambda record: LATE_COMPLETION not in record.getMessage())
    log = LogForwardingConfig(logger=logger)
    log_filter = TelemetryFilter(core_level="WARN", other_level="ERROR")
    logging_ = LoggingConfig(filter=log_filter, forwarding=log)
    if metrics is None:
        return CoreRuntime(telemetry=TelemetryConfig(logging=logging_))
    try:
        return CoreRuntime(telemetry=TelemetryConfig(logging=logging_, metrics=prometheus(metrics)))
    except ValueError as error:
        raise not_listening(metrics, error) from None


def may_be_pushed(client: Client) -> bool:
    """Return whether a server can push cancels to the client's workers: it must be told that they are there.

    A runtime that a program has made itself need not do that (`worker_heartbeat_interval`).
    """
    runtime = client.service_client.config.runtime
    return runtime is None or isinstance(runtime, CoreRuntime)


AWAY_PAUSE_SECONDS: Final = 0.5
AWAY_PAUSE_SECONDS_MAX: Final = 5.0
"""How long to wait before looking again for a server that is away: at first, and after many looks."""

AWAY_TOLD_SECONDS: Final = 30.0
"""How often somebody who waits for a server is told so."""


async def connect(
    settings: Settings,
    *,
    runtime: Runtime | None = None,
    namespace_there: bool = True,
    seconds_max: float = CONNECT_SECONDS,
) -> Client:
    """Return a connected Temporal client.

    TLS, API key and other profile values come from Temporal's own environment variables and configuration file. Without
    `namespace_there` nobody asks whether the namespace is there. Raises ServerUnavailable naming address and cause
    within `seconds_max`, InvalidInput for a bad key file, and MissingPart where there is one and the extra `encryption`
    is not installed.
    """
    settle_at_exit()
    configured = _configured()
    remedy = _remedy(settings, configured.get("target_host"))
    target = _target(settings, configured)
    address = target.get("target_host", DEFAULT_ADDRESS)
    namespace = target.get("namespace", DEFAULT_NAMESPACE)
    if not ADDRESS.fullmatch(address):
        raise ServerUnavailable(f"the address {address[:200]!r} is not HOST:PORT; {remedy}")
    # compressing for the same machine costs 0.2 ms of CPU per step and saves nothing
    compression = GrpcCompression.NONE if address.startswith(LOOPBACK) else GrpcCompression.GZIP
    data_converter = converter_of(settings)
    try:
        async with asyncio.timeout(seconds_max):
            client = await Client.connect(
                **target,
                data_converter=data_converter,
                grpc_compression=compression,
                runtime=runtime or core_runtime(),
                **_traced(settings.telemetry),
                payload_limits=PayloadLimitsConfig(payloads_warn_size=PAYLOADS_WARNED_BYTES),
            )
            if namespace_there:
                await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
    except TimeoutError:
        raise ServerUnreachable(f"no answer from {address} within {seconds_max:g} s; {remedy}") from None
    except RPCError as error:
        if says_away(error):
            raise ServerUnreachable(f"the connection to {address} was lost ({_line(error)}); {remedy}") from None
        text = f"{address} refuses namespace {namespace!r} ({error.status.name.lower()}: {_line(error)})"
        create = f"; `{CREATE_NAMESPACE}` creates it" if error.status is RPCStatusCode.NOT_FOUND else ""
        raise ServerUnavailable(f"{text}; check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY{create}") from None
    except (RuntimeError, ValueError, TypeError, OSError) as error:  # as the SDK tells what it cannot use
        raise _not_connected(error, address, configured, remedy) from None
    return client


def _not_connected(error: Exception, address: str, configured: ClientConnectConfig, remedy: str) -> ServerUnavailable:
    """Return our error for how the SDK says that there is no connection."""
    if (mistake := unusable(error)) is not None:  # whoever waits for a server waits in vain
        return ServerUnavailable(f"no connection to {address} ({_line(error)}): {mistake}")
    tls = configured.get("tls")
    uses_tls = bool(tls) or (tls is None and bool(configured.get("api_key")))
    has_certificate = isinstance(tls, TLSConfig) and tls.client_cert is not None
    if (refused := tls_remedy(error, tls=uses_tls, certificate=has_certificate)) is not None:
        return ServerUnreachable(f"no connection to {address} ({_line(error)}): {refused}")
    return ServerUnreachable(f"no Temporal server at {address} ({_line(error)}); {remedy}")


async def connect_when_there(
    settings: Settings, *, runtime: Runtime | None, seconds_max: float, report: Callable[[str], None]
) -> Client:
    """Connect as `connect` does, but wait for a server that does not answer, as `when_there` does."""
    return await when_there(partial(connect, settings, runtime=runtime), seconds_max=seconds_max, report=report)


async def when_there(request: Callable[[], Awaitable[T]], *, seconds_max: float, report: Callable[[str], None]) -> T:
    """Make the request again while it raises ServerUnreachable, for up to `seconds_max`, and `report` the wait.

    Any other error is raised at once. Raises ServerUnreachable when the time is up.
    """
    clock = asyncio.get_running_loop().time
    gives_up_at, reported_at, pause = clock() + seconds_max, -math.inf, AWAY_PAUSE_SECONDS
    while True:
        try:
            return await request()
        except ServerUnreachable as error:
            remaining = gives_up_at - clock()
            if remaining <= 0:
                raise
            if clock() - reported_at >= AWAY_TOLD_SECONDS:
                reported_at = clock()
                report(f"waiting for the Temporal server, at most {remaining:.0f} s: {error}")
        await asyncio.sleep(min(pause, remaining))
        pause = min(2 * pause, AWAY_PAUSE_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client goes, and whose address that is: an option's, a variable's, a profile's, or what is there."""

    address: str
    decided_by: str
    namespace: str
    tls: bool
    is_chosen: bool = True
    """Whether anybody chose it, or this folder's server is there; else it is Temporal's usual port on this machine."""


def target(settings: Settings, environment: Mapping[str, str] = os.environ) -> Target:
    """Return where `connect` goes with these settings; asks no server. Raises ServerUnavailable, InvalidInput."""
    configured = _configured()
    chosen = _target(settings, configured)
    address = chosen.get("target_host", DEFAULT_ADDRESS)
    is_chosen = True
    if settings.address is not None:
        decided_by = "from --address"
    elif "TEMPORAL_ADDRESS" in environment and configured.get("target_host"):
        decided_by = "from TEMPORAL_ADDRESS"
    elif configured.get("target_host"):
        decided_by = f"from the Temporal profile {environment.get(PROFILE) or 'default'!r}"
    elif running_server(settings.data_dir) is not None:
        decided_by = f"that of the embedded server of {settings.data_dir}"
    else:
        is_chosen = False
        decided_by = f"Temporal's default: none is set, and no embedded server runs in {settings.data_dir}"
    return Target(address, decided_by, chosen.get("namespace", DEFAULT_NAMESPACE), bool(chosen.get("tls")), is_chosen)


def converter_of(settings: Settings) -> DataConverter:
    """Return the data converter of everything that talks to Temporal. Raises InvalidInput, MissingPart."""
    return converter(settings.storage_place, codec_of(settings))


def codec_of(settings: Settings) -> PayloadCodec | None:
    """Return the codec that encrypts with the settings' keys; none without a key file. Reads the file each time.

    Raises InvalidInput for a bad key file, MissingPart where the extra `encryption` is not installed.
    """
    if settings.encryption_key_file is None:
        return None
    try:
        from holdfast.storage.encryption import codec_at  # noqa: PLC0415  # an extra of its own
    except ModuleNotFoundError as error:
        problem = f"{KEY_FILE} is set, and {error.name} is not installed"
        raise MissingPart(f"{problem}; run: {install_command('encryption')}") from None
    return codec_at(settings.encryption_key_file)


class _Traced(TypedDict, total=False):
    """What a client is made with to pass traces on."""

    plugins: Sequence[Plugin]
    interceptors: Sequence[Interceptor]


def _traced(telemetry: Telemetry) -> _Traced:
    """Return what passes traces on; nothing where they are off. Raises InvalidInput."""
    if not telemetry.traces:
        return _Traced()
    try:
        from holdfast.telemetry.traces import tracing  # noqa: PLC0415  # an extra

        tracer = tracing(telemetry)
    except (ValueError, TypeError) as error:  # OpenTelemetry's own, which it reads from the environment
        raise InvalidInput(f"the OTEL_* variables cannot be used: {_line(error)}; correct or unset them") from None
    return _Traced(plugins=tracer.plugins, interceptors=tracer.interceptors) if tracer else _Traced()


def unshared_storage(settings: Settings, client: Client) -> str | None:
    """Return what to tell of a worker that keeps large data in its own folder while others may serve the same server.

    None for the embedded server, or one on this machine, and where somebody has chosen the place.
    """
    address = client.service_client.config.target_host
    if settings.storage is not None or address.startswith(LOOPBACK):
        return None
    there = f"large data is kept in {settings.storage_place}, the Temporal server is {address}"
    return f"{there}; with workers on several machines, set HOLDFAST_STORAGE to a place that all of them reach"


def _configured() -> ClientConnectConfig:
    """Return Temporal's own configuration: its environment variables and profile."""
    try:
        return ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        why = naming_variables(error) if isinstance(error, OSError) else None
        raise ServerUnavailable(f"the Temporal configuration cannot be read: {why or _line(error)}") from None


def _target(settings: Settings, configured: ClientConnectConfig) -> ClientConnectConfig:
    """Return Temporal's own configuration, completed by ours; an explicit setting wins over both."""
    target = configured.copy()
    embedded = running_server(settings.data_dir) if settings.address is None else None
    address = target.get("target_host") or (embedded.address if embedded else DEFAULT_ADDRESS)
    target["target_host"] = settings.address or address
    target["namespace"] = settings.namespace or target.get("namespace") or DEFAULT_NAMESPACE
    return target


def _remedy(settings: Settings, configured: str | None) -> str:
    if settings.address is not None:
        return "is the address right?"
    if configured:
        return "is TEMPORAL_ADDRESS (or the Temporal profile) right? `holdfast dev` starts a server on this machine"
    return "start one with `holdfast dev`, or set TEMPORAL_ADDRESS"


def _line(error: Exception) -> str:
    """Return the error in one line: of the native core's nested ones the innermost words, which name the cause."""
    text = " ".join(str(error).split())
    inner = re.findall(r'(?:message|error): "([^"]+)"', text)
    return inner[-1][:200] if inner else text[:200]
