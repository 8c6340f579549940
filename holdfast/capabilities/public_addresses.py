"""Which hosts a fetch may reach: an allow-list of names, and addresses of the public internet alone. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from holdfast.core.base.errors import InvalidInput

URL_CHARS_MAX: Final = 4_096
"""The longest address that is fetched."""

HOSTS_MAX: Final = 200
"""The most entries of an allow-list."""

ANY_HOST: Final = "*"
"""The entry that allows every host of the public internet."""

PORTS: Final = {"http": 80, "https": 443}

Address: TypeAlias = IPv4Address | IPv6Address

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ENTRY: Final = re.compile(r"(\*\.)?[a-z0-9_.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

_REFUSED_NETWORKS: Final = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # the metadata of Azure's machines, in a public range
            "192.88.99.0/24",  # relays that lead to IPv6
            "64:ff9b::/96",  # IPv4 in IPv6, however it is written
            "64:ff9b:1::/48",
            "2001::/23",
            "2002::/16",
            "::/96",
        ),
    )
)
"""Networks that count as public by their numbers, and lead elsewhere."""


class FetchRefused(Exception):
    """The address is not one that may be fetched; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address: where to connect, still by name."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """What the request's Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS[self.scheme] else f"{name}:{self.port}"


class AllowList:
    """The hosts that may be fetched: `example.com`, `*.example.com` (its subdomains alone), `host:8443`, `*`.

    An entry without a port is for the scheme's own. Raises InvalidInput for an entry that is no host.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        every = tuple(each.strip().lower() for each in hosts)
        if not every or len(every) > HOSTS_MAX:
            text = f"fetch_url needs hosts that it may reach, 1 to {HOSTS_MAX}, and has {len(every)}"
            raise InvalidInput(f"{text}; name them, such as hosts=['docs.example.com', '*.example.org']")
        for each in every:
            if each != ANY_HOST and _ENTRY.fullmatch(each) is None:
                text = f"{each[:80]!r} is no host that fetch_url can allow"
                raise InvalidInput(f"{text}; write 'example.com', '*.example.com', 'example.com:8443' or '*'")
        self.entries = every

    def allows(self, target: Target) -> bool:
        """Return whether an entry is for that host and port."""
        own = target.port == PORTS[target.scheme]
        name = f"[{target.host}]" if ":" in target.host else target.host
        return any(self._matches(each, name, target.port, own_port=own) for each in self.entries)

    @staticmethod
    def _matches(entry: str, host: str, port: int, *, own_port: bool) -> bool:
        bare, colon, number = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            bare, number = entry, ""
        if not (int(number) == port if number else own_port):
            return False
        return bare in (ANY_HOST, host) or (bare.startswith("*.") and host.endswith(bare[1:]))


def target_of(url: str) -> Target:
    """Return where an address leads. Raises FetchRefused for every spelling that two programs can read in two ways."""
    if len(url) > URL_CHARS_MAX:
        raise FetchRefused(f"the address has {len(url):,} characters, at most {URL_CHARS_MAX:,} are allowed")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise FetchRefused("an address has ASCII characters alone, without spaces and backslashes; encode the others")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FetchRefused(f"{url[:200]!r} is no address: {error}") from None
    if parts.scheme not in PORTS:
        raise FetchRefused(f"only http and https are fetched, not {parts.scheme[:20]!r}")
    if "@" in parts.netloc or "%" in parts.netloc:
        raise FetchRefused("an address with a user name, a password or an encoded host is not fetched")
    host = (parts.hostname or "").removesuffix(".")
    _check_host(host, bracketed=parts.netloc.startswith("["))
    return Target(
        parts._replace(fragment="").geturl(), parts.scheme, host, PORTS[parts.scheme] if port is None else port
    )


def _check_host(host: str, *, bracketed: bool) -> None:
    """Refuse what is neither a name nor an address in its usual form: decimal, octal and short ones among them."""
    try:
        literal = ip_address(host)
    except ValueError:
        labels = host.split(".")
        if bracketed or len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):  # noqa: PLR2004  # the DNS's bound
            raise FetchRefused(f"{host[:80]!r} is no host name") from None
        if _NUMBER.fullmatch(labels[-1]):
            raise FetchRefused(f"{host[:80]!r} is an unusual spelling of an IP address, which is not fetched") from None
    else:
        if bracketed is not (literal.version == 6):  # noqa: PLR2004  # IPv6
            raise FetchRefused(f"{host[:80]!r} is no host name")


def is_public(address: Address) -> bool:
    """Return whether the address is of the public internet: no machine, network or metadata service of ours."""
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is not None:
            return is_public(mapped)
        if address.scope_id is not None:
            return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified or not address.is_global
    return not special and not any(
        address in network for network in _REFUSED_NETWORKS if network.version == address.version
    )
