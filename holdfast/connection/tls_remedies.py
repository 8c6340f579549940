"""What to do about a connection that TLS or the server's authorizer refused, by the words of the SDK's error."""

from __future__ import annotations

from typing import Final

_PAIR: Final = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"

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
    ("broken pipe", "does the server want TLS? Then set TEMPORAL_TLS=true; else check the address"),
)
"""Words of rustls, of tonic and of the server's authorizer, the more telling first."""


def tls_remedy(error: Exception) -> str | None:
    """Return what to do about this error of a connection; None where it has to do with neither."""
    return next((remedy for words, remedy in _REMEDIES if words in str(error)), None)
