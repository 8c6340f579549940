"""Certificates for both ends of mutual TLS, and signed claims for the server's authorizer."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import RSAAlgorithm

SERVER_NAME: Final = "temporal.holdfast.test"
KEY_ID: Final = "holdfast"
LIFETIME: Final = timedelta(days=1)
CLOCKS_BEHIND: Final = timedelta(hours=6)
"""A certificate was valid so long before it was made: tests have workers whose clock is hours off."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates in `folder`, all for loopback and SERVER_NAME."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("holdfast tests")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = _builder(self._name, self._name, self._key).add_extension(constraints, critical=True)
        self._write("ca", own.sign(self._key, hashes.SHA256()), self._key)
        self.certificate = folder / "ca.pem"

    def pair(self, name: str, lifetime: timedelta = LIFETIME) -> Pair:
        """Return a certificate for `name`; one with a `lifetime` below zero has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.DNSName(SERVER_NAME), x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        signed = (
            _builder(_name(name), self._name, key, lifetime)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._write(name, signed, key)

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta = LIFETIME
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + min(lifetime, timedelta()) - CLOCKS_BEHIND)
        .not_valid_after(now + lifetime)
    )


class Claims:
    """Signs what the server's authorizer reads: who it is, and what they may do in which namespace."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        self.keys = folder / "keys.json"
        """The public key as the server reads it (a JSON Web Key Set)."""
        self.keys.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}))

    def token(self, who: str, *permissions: str) -> str:
        """Return a token for `who`; a permission is NAMESPACE:read, :write, :worker or :admin."""
        claims = {"sub": who, "permissions": list(permissions), "exp": time.time() + LIFETIME.total_seconds()}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": KEY_ID})
