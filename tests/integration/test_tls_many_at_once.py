"""A TLS port lives through many who connect at once, and serves a renewed certificate without a restart."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from gpupool.pool.access.tls_files import TlsFiles

from tests.support.certificates import make_certificates
from tests.support.patience import BUSY

#: A server in a process of its own, so that only that one dies, and threads that do nothing but begin connections.
_CROWD = """
import socket, ssl, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import grpc
from gpupool.pool.access.tls_files import TlsFiles

authority, certificate, key, times = sys.argv[1:]
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_secure_port("127.0.0.1:0", TlsFiles(Path(certificate), Path(key)).credentials())
server.start()
context = ssl.create_default_context(cafile=authority)
context.set_alpn_protocols(["h2"])

def connect():
    for _ in range(int(times)):
        with socket.create_connection(("127.0.0.1", port)) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1"):
                made.append(plain)

made = []
threads = [threading.Thread(target=connect) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
server.stop(None)
print("alive", len(made))
"""


def test_many_connect_at_once(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    files = (str(made.authority), str(made.certificate), str(made.key))
    done = subprocess.run(
        [sys.executable, "-c", _CROWD, *files, "40"],
        capture_output=True,
        text=True,
        timeout=60 * BUSY,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive 640\n"), done.stderr


def test_grpc_is_told_of_what_is_new_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    told = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda first, renewed: told.append(renewed))
    TlsFiles(made.certificate, made.key).credentials()
    (renewed,) = told
    assert renewed() is None
    made.certificate.write_bytes(other.certificate.read_bytes())
    made.key.write_bytes(other.key.read_bytes())
    assert isinstance(renewed(), grpc.ServerCertificateConfiguration)
    assert renewed() is None
    made.key.unlink()
    assert renewed() is None


def test_a_renewed_certificate_is_served(tmp_path: Path) -> None:
    made, other = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    server = grpc.server(None)
    port = server.add_secure_port("127.0.0.1:0", TlsFiles(made.certificate, made.key).credentials())
    server.start()
    try:
        before = ssl.get_server_certificate(("127.0.0.1", port))
        made.certificate.write_bytes(other.certificate.read_bytes())
        made.key.write_bytes(other.key.read_bytes())
        assert before.split() != ssl.get_server_certificate(("127.0.0.1", port)).split()
        assert (
            ssl.get_server_certificate(("127.0.0.1", port)).split() == other.certificate.read_text().split()
        )
    finally:
        server.stop(None)
