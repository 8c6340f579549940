"""What a person is told whom TLS or the server's authorizer refused; the errors are those of a real server."""

from __future__ import annotations

import pytest

from holdfast.connection.tls_remedies import tls_remedy

CONNECT = (
    "Failed client connect: Server connection error: tonic::transport::Error(Transport, "
    "ConnectError(Custom {{ kind: InvalidData, error: {} }})))"
)

SEEN = {
    "received fatal alert: CertificateRequired": "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "received fatal alert: UnknownCA": "does not trust the authority of the client certificate",
    CONNECT.format("InvalidCertificate(UnknownIssuer)"): "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    CONNECT.format("InvalidCertificate(BadSignature)"): "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    CONNECT.format('InvalidCertificate(NotValidForNameContext { expected: DnsName("x.y"),'): "TEMPORAL_TLS_SERVER_NAME",
    "Request unauthorized.": "TEMPORAL_API_KEY",
    "stream closed because of a broken pipe": "TEMPORAL_TLS=true",
}


@pytest.mark.parametrize("said", SEEN)
def test_a_refusal_names_the_setting_to_mend(said: str) -> None:
    assert SEEN[said] in str(tls_remedy(RuntimeError(said), tls="TLS=true" not in SEEN[said]))


def test_a_server_that_is_not_there_has_nothing_to_do_with_it() -> None:
    assert tls_remedy(RuntimeError("tcp connect error: Connection refused (os error 111)"), tls=True) is None
