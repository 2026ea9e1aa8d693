"""A connection that fails because of TLS says what to set; the details are gRPC's own, seen with a pool that speaks TLS."""

from __future__ import annotations

import pytest
from gpupool.client.endpoint import connection_advice
from gpupool.client.errors import PoolUnavailableError

TLS = "tls:pool.example.org:7460"
PLAIN = "10.0.0.5:7460"
UNTRUSTED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:7460: Tls handshake failed "
    "(TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED"
)
NO_TLS = (
    "Tls handshake failed: SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER"
)
CLOSED = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.5:7460: Socket closed"


@pytest.mark.parametrize(
    ("endpoint", "details", "names"),
    [
        (TLS, UNTRUSTED, "GPUPOOL_CA_FILE"),
        (TLS, NO_TLS, "write pool.example.org:7460 without tls:"),
        (PLAIN, CLOSED, "write tls:10.0.0.5:7460"),
    ],
)
def test_the_reason_is_named_with_what_to_write(endpoint: str, details: str, names: str) -> None:
    assert names in connection_advice(endpoint, details)


@pytest.mark.parametrize(
    ("endpoint", "details"),
    [(TLS, CLOSED), ("unix:/run/pool.sock", CLOSED), (PLAIN, "Connection refused"), (TLS, "")],
)
def test_other_failures_have_nothing_to_do_with_tls(endpoint: str, details: str) -> None:
    assert connection_advice(endpoint, details) == ""


def test_the_advice_is_part_of_the_message() -> None:
    error = PoolUnavailableError(PLAIN, "socket closed", "If it speaks TLS, write tls:10.0.0.5:7460.")
    assert str(error).endswith("(socket closed). If it speaks TLS, write tls:10.0.0.5:7460.")
    assert error.detail == "socket closed"
