"""Temporal's production server on PostgreSQL: each role in processes of its own, on loopback addresses of their own.

Configured as in a container: the server's own template, filled from the environment.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError, TLSConfig

from tests.cluster.balancer import Balancer
from tests.cluster.binaries import VERSION, Binaries, built
from tests.cluster.credentials import SERVER_NAME, Authority, Claims, Pair
from tests.cluster.postgres import DATABASES, PASSWORD, USER, Postgres
from tests.cluster.processes import Program, environment

ROOT: Final = Path(__file__).parents[2]
DYNAMIC_CONFIG: Final = ROOT / "deploy" / "temporal" / "dynamic-config.yaml"
ROLES: Final = {"history": 2, "matching": 2, "frontend": 2, "worker": 1}
"""How many processes of each role; the order is that of their start."""

INTERNAL_FRONTEND: Final = "internal-frontend"
"""Where an authorizer asks everybody for claims, the server's own worker comes in by a door of its own."""

FRONTEND_PORT: Final = 7233
HTTP_PORT: Final = 7243
METRICS_PORT: Final = 9091
READY_SECONDS_MAX: Final = 180.0
POLL_SECONDS: Final = 0.2
NETWORK: Final = "127.77"
"""Every process has an address of its own below it: all processes of one role listen on the same ports."""

NETWORKS: Final = 250
SCHEMA_SECONDS_MAX: Final = 300
SCHEMAS: Final = {"temporal": "postgresql/v12/temporal", "temporal_visibility": "postgresql/v12/visibility"}


@dataclass(frozen=True, slots=True)
class Security:
    """Mutual TLS for everybody, and claims that the server asks every client for."""

    authority: Authority
    claims: Claims
    server: Pair
    client: Pair

    @classmethod
    def made(cls, folder: Path) -> Security:
        """Return new keys, certificates and claims in `folder`."""
        authority = Authority(folder / "tls")
        return cls(authority, Claims(folder / "claims"), authority.pair("server"), authority.pair("client"))

    def of_server(self) -> dict[str, str]:
        """Return what the server's template reads."""
        authority, server = str(self.authority.certificate), self.server
        return {
            "TEMPORAL_TLS_REQUIRE_CLIENT_AUTH": "true",
            "TEMPORAL_TLS_SERVER_CA_CERT": authority,
            "TEMPORAL_TLS_SERVER_CERT": str(server.certificate),
            "TEMPORAL_TLS_SERVER_KEY": str(server.key),
            "TEMPORAL_TLS_INTERNODE_SERVER_NAME": SERVER_NAME,
            "TEMPORAL_TLS_FRONTEND_CERT": str(server.certificate),
            "TEMPORAL_TLS_FRONTEND_KEY": str(server.key),
            "TEMPORAL_TLS_CLIENT1_CA_CERT": authority,
            "TEMPORAL_TLS_CLIENT2_CA_CERT": authority,
            "TEMPORAL_TLS_FRONTEND_SERVER_NAME": SERVER_NAME,
            "TEMPORAL_AUTH_AUTHORIZER": "default",
            "TEMPORAL_AUTH_CLAIM_MAPPER": "default",
            "TEMPORAL_JWT_KEY_SOURCE1": self.claims.keys.as_uri(),
            "USE_INTERNAL_FRONTEND": "true",
        }

    def of_client(self, *permissions: str) -> dict[str, str]:
        """Return what Temporal's clients, ours among them, read of these from the environment."""
        return {
            "TEMPORAL_TLS": "true",
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(self.authority.certificate),
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(self.client.certificate),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(self.client.key),
            "TEMPORAL_TLS_SERVER_NAME": SERVER_NAME,
            "TEMPORAL_API_KEY": self.claims.token("holdfast", *permissions),
        }


@dataclass(frozen=True, slots=True)
class Shard:
    """Who has acquired a shard last, by the database."""

    number: int
    range_id: int
    """Counts how often it has been acquired."""
    owner: str
    """The name of a history process."""


@dataclass
class Cluster:
    """A running cluster; `address` is the balancer's before its frontends."""

    folder: Path
    postgres: Postgres
    """The one that the server works with."""
    database: Balancer
    """Between the server and PostgreSQL."""
    balancer: Balancer
    security: Security | None
    server: Path
    """The server's program."""
    environment: dict[str, str]
    """What its processes have in common."""
    hosts: dict[str, list[str]]
    """The addresses of a role's processes, by their number."""
    stack: ExitStack
    """Ends with the cluster."""
    measured: bool = False
    """Whether each process serves its metrics."""
    standby: Postgres | None = None
    """A replica that can take over."""
    nodes: dict[str, list[Program]] = field(default_factory=dict[str, list[Program]])

    @property
    def address(self) -> str:
        """HOST:PORT, for clients."""
        return self.balancer.address

    @property
    def programs(self) -> list[Program]:
        """Every process of the server."""
        return [each for role in self.nodes.values() for each in role]

    def start(self, role: str, host: str) -> Program:
        """Start a process of a role, and return it."""
        name = f"{role}-{len(self.nodes.setdefault(role, [])) + 1}"
        told = {**self.environment, "BIND_ON_IP": host, "TEMPORAL_BROADCAST_ADDRESS": host}
        if self.measured:
            told["PROMETHEUS_ENDPOINT"] = f"{host}:{METRICS_PORT}"
        command = [str(self.server), "--allow-no-auth", "start", "--service", role]
        node = Program(name, command, self.folder / f"{name}.log", told)
        self.stack.callback(node.stop)
        self.nodes[role].append(node)
        return node

    def join(self, role: str) -> Program:
        """Start one more process of a role, at an address of its own, and return it."""
        network, _, number = max((each for hosts in self.hosts.values() for each in hosts), key=_number).rpartition(".")
        host = f"{network}.{int(number) + 1}"
        self.hosts[role].append(host)
        return self.start(role, host)

    def replica(self) -> Postgres:
        """Start a replica of the database, and return it."""
        replica = Postgres(free_port(), source=self.postgres, follow=self.postgres.address)
        self.stack.callback(replica.stop)
        return replica

    def turn_to(self, postgres: Postgres) -> None:
        """Have the server work with another PostgreSQL: new connections go there, and the old ones end."""
        self.postgres = postgres
        self.database.turn_to(postgres.address)

    def shards(self) -> list[Shard]:
        """Return the shards that have been acquired, as the database has them."""
        # an owner begins with the address of its process; the rest of the column is protobuf's
        owner = f"substring(encode(data, 'escape') from '{re.escape(NETWORK)}[.][0-9]+[.][0-9]+:')"
        names = {host: f"history-{number}" for number, host in enumerate(self.hosts["history"], start=1)}
        rows = self.postgres.query(f"SELECT shard_id, range_id, {owner} FROM shards ORDER BY 1")  # noqa: S608  # ours
        return [Shard(int(row[0]), int(row[1]), names[row[2].removesuffix(":")]) for row in rows if row[2]]

    async def until_ready(self) -> None:
        """Return once every frontend answers, and knows where every shard is."""
        until = time.monotonic() + READY_SECONDS_MAX
        for target in self.balancer.targets:
            while not await self._answers(target):
                for each in self.programs:
                    assert each.alive, f"{each.name} ended:\n{each.last_words()}"
                assert time.monotonic() < until, "\n".join(each.last_words(5) for each in self.programs)
                await asyncio.sleep(POLL_SECONDS)

    async def _answers(self, target: str) -> bool:
        tls: TLSConfig | bool = False
        if (security := self.security) is not None:
            authority = security.authority.certificate.read_bytes()
            pair = security.client.certificate.read_bytes(), security.client.key.read_bytes()
            tls = TLSConfig(
                server_root_ca_cert=authority, domain=SERVER_NAME, client_cert=pair[0], client_private_key=pair[1]
            )
        try:
            key = None if security is None else security.claims.token("tests", "temporal-system:admin")
            client = await Client.connect(target, tls=tls, api_key=key)
            return await client.service_client.check_health()
        except (RuntimeError, RPCError):
            return False


@contextmanager
def cluster(
    folder: Path,
    *,
    shards: int = 16,
    security: Security | None = None,
    restored: Postgres | None = None,
    measured: bool = False,
    version: str = VERSION,
    dynamic_config: Path = DYNAMIC_CONFIG,
) -> Generator[Cluster]:
    """Run PostgreSQL and the server's roles until the block ends; nothing is left but the files in `folder`.

    With `restored`, a running PostgreSQL that has the databases of another cluster, the cluster begins with these.
    `measured`: the server reaches PostgreSQL itself, and each process serves its metrics at METRICS_PORT.
    `dynamic_config` has the server's settings that differ from its defaults: ours, if nothing is said.
    """
    binaries = built(version)
    with ExitStack() as stack:
        postgres = restored or Postgres(free_port())
        stack.callback(postgres.stop)
        if restored is None:
            _create_schema(binaries, postgres)
        database = stack.enter_context(Balancer([postgres.address]))
        network = _free_network()
        # in the order of ROLES, and the frontends' addresses known before
        roles = {**ROLES, INTERNAL_FRONTEND: 1} if security is not None else dict(ROLES)
        hosts = _hosts(network, roles)
        balancer = stack.enter_context(Balancer([f"{host}:{FRONTEND_PORT}" for host in hosts["frontend"]]))
        reached = postgres.address if measured else database.address
        told = _environment(reached, hosts, shards, security)
        told["DYNAMIC_CONFIG_FILE_PATH"] = str(dynamic_config)
        running = Cluster(folder, postgres, database, balancer, security, binaries.server, told, hosts, stack, measured)
        # the address of another cluster that is restored is written over, which 1.31 does not do
        described = told["CLUSTER_RPC_ADDRESS"] if restored is not None else ""
        for role in roles:
            for host in hosts[role]:
                _until_described(running.start(role, host), postgres, described)
        yield running


def _until_described(first: Program, postgres: Postgres, address: str) -> None:
    """Return once a process has written down what cluster this is: two that do so at once both give up.

    With an `address`, once that is in it.
    """
    until = time.monotonic() + READY_SECONDS_MAX
    described = f"SELECT count(*) FROM cluster_metadata_info WHERE position('{address}' in encode(data, 'escape')) > 0"  # noqa: S608  # ours
    while postgres.query(described) == [["0"]]:
        assert first.alive, first.last_words()
        assert time.monotonic() < until, first.last_words()
        time.sleep(POLL_SECONDS)


def _environment(database: str, hosts: dict[str, list[str]], shards: int, security: Security | None) -> dict[str, str]:
    host, _, port = database.rpartition(":")
    told = environment(
        DB="postgres12",
        POSTGRES_SEEDS=host,
        DB_PORT=port,
        POSTGRES_USER=USER,
        POSTGRES_PWD=PASSWORD,
        NUM_HISTORY_SHARDS=str(shards),
        # one value for all: each process writes its own down as it starts, and two at once both give up
        CLUSTER_RPC_ADDRESS=f"{hosts['frontend'][0]}:{FRONTEND_PORT}",
        CLUSTER_HTTP_ADDRESS=f"{hosts['frontend'][0]}:{HTTP_PORT}",
        LOG_LEVEL=os.environ.get("HOLDFAST_TEST_SERVER_LOG", "warn"),
    )
    return told if security is None else {**told, **security.of_server()}


def _create_schema(binaries: Binaries, postgres: Postgres) -> None:
    """Create the databases of a new cluster."""
    for database in DATABASES:
        _sql(binaries, postgres, database, "create-database")
        _sql(binaries, postgres, database, "setup-schema", "--version", "0.0")
    update_schema(binaries, postgres)


def update_schema(binaries: Binaries, postgres: Postgres) -> dict[str, str]:
    """Bring both databases to the schema of that version, and return the versions that they then have."""
    versions: dict[str, str] = {}
    for database in DATABASES:
        _sql(binaries, postgres, database, "update-schema", "--schema-name", SCHEMAS[database])
        [[versions[database]]] = postgres.query("SELECT curr_version FROM schema_version", database)
    return versions


def _sql(binaries: Binaries, postgres: Postgres, database: str, *step: str) -> None:
    host, _, port = postgres.address.rpartition(":")
    tool = [str(binaries.sql), "--plugin", "postgres12", "--endpoint", host, "--port", port, "--user", USER]
    done = subprocess.run(
        [*tool, "--database", database, *step],
        env=environment(SQL_PASSWORD=PASSWORD),
        check=False,
        capture_output=True,
        text=True,
        timeout=SCHEMA_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _hosts(network: int, roles: dict[str, int]) -> dict[str, list[str]]:
    places = iter(range(1, NETWORKS))
    return {role: [f"{NETWORK}.{network}.{next(places)}" for _ in range(count)] for role, count in roles.items()}


def _number(host: str) -> int:
    return int(host.rpartition(".")[2])


def _free_network() -> int:
    """Return the number of a network on which no other cluster listens."""
    while True:
        number = secrets.randbelow(NETWORKS) + 1
        with socket.socket() as probe:
            try:
                probe.bind((_hosts(number, {"frontend": 1})["frontend"][0], FRONTEND_PORT))
            except OSError:
                continue
            return number


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
