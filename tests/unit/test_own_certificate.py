"""The certificate that a pool makes for itself."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from gpupool.pool.access import own_certificate as module
from gpupool.pool.access.own_certificate import own_certificate
from gpupool.pool.access.tls_files import TlsFiles
from structlog.testing import capture_logs


def _shakes_hands(files: TlsFiles, host: str) -> bool:
    """Whether a caller that trusts the file alone believes a server with it to be `host`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ssl.create_default_context(cafile=str(files.certificate)).wrap_socket(
            ours, server_hostname=host
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "login1.example.org", "n" * 63 + ".example.org"])
def test_callers_that_have_the_file_believe_it(tmp_path: Path, host: str) -> None:
    files = own_certificate(tmp_path / "tls", host)
    files.credentials()
    assert _shakes_hands(files, host)
    assert not _shakes_hands(files, "other.example.org")
    assert (files.key.stat().st_mode & 0o777, (tmp_path / "tls").stat().st_mode & 0o777) == (0o600, 0o700)


def test_it_is_kept_and_one_that_is_made_is_in_the_log(tmp_path: Path) -> None:
    with capture_logs() as first_start:
        first = own_certificate(tmp_path, "login1").certificate.read_bytes()
    with capture_logs() as second_start:
        assert own_certificate(tmp_path, "login1").certificate.read_bytes() == first
    assert [line["file"] for line in first_start] == [str(tmp_path / "pool.pem")]
    assert second_start == []


def test_another_name_needs_another_one(tmp_path: Path) -> None:
    own_certificate(tmp_path, "login1")
    assert _shakes_hands(own_certificate(tmp_path, "login2"), "login2")


def test_one_that_ends_soon_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_VALID", datetime.timedelta(days=80))
        own_certificate(tmp_path, "login1")
    found = x509.load_pem_x509_certificate(own_certificate(tmp_path, "login1").certificate.read_bytes())
    assert (found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days > 800


@pytest.mark.parametrize("broken", ["pool.pem", "pool.key"])
def test_broken_files_are_replaced(tmp_path: Path, broken: str) -> None:
    own_certificate(tmp_path, "login1")
    (tmp_path / broken).write_bytes(b"\xff" * 10)
    assert _shakes_hands(own_certificate(tmp_path, "login1"), "login1")


@pytest.mark.parametrize("host", ["ü.example", "a\udc80"])
def test_what_cannot_stand_in_one_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError):
        own_certificate(tmp_path, host)
