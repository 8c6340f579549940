"""What to do about a connection that TLS or the server's authorizer refused, by the words of the SDK's error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_CERTIFICATE: Final = "TEMPORAL_TLS_CLIENT_CERT_PATH"
_KEY: Final = "TEMPORAL_TLS_CLIENT_KEY_PATH"
_PAIR: Final = f"{_CERTIFICATE} and {_KEY}"

_UNUSABLE: Final = (
    ("PrivateKeyParseError", f"the client's key is no private key in PEM form; check {_KEY}"),
    ("NoCertificatesPresented", f"the client's certificate is no certificate in PEM form; check {_CERTIFICATE}"),
    ("InconsistentKeys", f"the client's key is not that of its certificate; check {_PAIR}"),
    (
        "both client cert and private key",
        f"certificate and key go together; set {_PAIR}",
    ),
)
"""Words about what we were given ourselves: no server was asked."""

_REMEDIES: Final = (
    ("CertificateRequired", f"the server asks for a client certificate; set {_PAIR}"),
    ("alert: UnknownCA", f"the server does not trust the authority of the client certificate; check {_PAIR}"),
    ("alert: CertificateExpired", f"the client certificate has expired; renew it and check {_PAIR}"),
    (
        "NotValidForName",
        "the server's certificate is for another name; set TEMPORAL_TLS_SERVER_NAME to one of its own",
    ),
    ("InvalidCertificate(Expired", "the server's certificate has expired"),
    (
        "InvalidCertificate",
        "the server's certificate is not trusted; set TEMPORAL_TLS_SERVER_CA_CERT_PATH to the file of its authority",
    ),
    ("Request unauthorized", "the server refuses the credentials; check TEMPORAL_API_KEY"),
)
"""Words of rustls, of tonic and of the server's authorizer, the more telling first."""

_NO_TLS_THERE: Final = ("handshake eof", "InvalidContentType", "corrupt message")
"""How it ends where we begin TLS with a server that speaks none."""

_DROPPED: Final = ("broken pipe", "close_notify", "operation was canceled", "onnection reset", "ConnectionReset")
"""How it ends where a server closes without a word: as it does when it refuses a certificate, or wants TLS."""


def unusable(error: Exception) -> str | None:
    """Return what is wrong with our own certificate and key; None where it is not that."""
    return next((remedy for words, remedy in _UNUSABLE if words in str(error)), None)


def tls_remedy(error: Exception, *, tls: bool, certificate: bool = False) -> str | None:
    """Return what to do about this error of a connection; None where it has to do with neither.

    `tls` is whether we use it, `certificate` whether we have one to show.
    """
    text = str(error)
    for words, remedy in _REMEDIES:
        if words in text:
            return remedy
    if tls and any(words in text for words in _NO_TLS_THERE):
        return "does the server speak TLS? Else set TEMPORAL_TLS=false (an API key turns it on, too)"
    if not any(words in text for words in _DROPPED):
        return None
    if not tls:
        return "does the server want TLS? Then set TEMPORAL_TLS=true; else check the address"
    if certificate:
        return f"does the server refuse the client certificate (expired, of another authority)? Check {_PAIR}"
    return f"does the server ask for a client certificate? Then set {_PAIR}"


def naming_variables(error: OSError, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what is wrong with a file that cannot be read, by the variables that name it; None without one."""
    names = [
        name for name, value in environment.items() if name.startswith("TEMPORAL_") and value == str(error.filename)
    ]
    return f"{' and '.join(sorted(names))} is {error.filename!r}: {error.strerror}" if names else None
