"""Certificate and key of the pool's TCP port, in PEM files that an administrator made."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc

from gpupool.client.endpoint import is_open_to_others


class TlsFilesUnusableError(ValueError):
    """A file cannot be used; one sentence."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths. `certificate`: with the chain up to its authority."""

    certificate: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """For the port.

        Both files are looked at for each connection, so that a renewed certificate counts without a restart. gRPC is told only
        of what is new: it frees what it had when it is told, also under another thread that begins a connection at that moment
        (grpc/grpc issue 36693). Told at each connection, a server that many call at once dies of that.

        Raises:
            TlsFilesUnusableError: a file cannot be read, is none, or the key is open to others.
        """
        latest = self._read()
        lock = threading.Lock()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal latest
            # Half of a renewal may be done: then what was before goes on.
            with lock, contextlib.suppress(TlsFilesUnusableError):
                now = self._read()
                if now != latest:
                    latest = now
                    return grpc.ssl_server_certificate_configuration([latest])
            return None

        first = grpc.ssl_server_certificate_configuration([latest])
        # None means no change; the types of the package do not know that.
        return grpc.dynamic_ssl_server_credentials(first, cast("Any", renewed))

    def _read(self) -> tuple[bytes, bytes]:
        """Key and certificate."""
        try:
            if is_open_to_others(self.key.stat()):
                raise TlsFilesUnusableError(
                    f"the key {self.key} is open to others; run: chmod 600 {self.key}"
                )
            certificate, key = self.certificate.read_bytes(), self.key.read_bytes()
        except OSError as error:
            raise TlsFilesUnusableError(f"{error.filename} cannot be read ({error.strerror})") from None
        for path, text, word in (
            (self.certificate, certificate, b"CERTIFICATE"),
            (self.key, key, b"PRIVATE KEY"),
        ):
            if b"-----BEGIN " not in text or word not in text:
                raise TlsFilesUnusableError(f"{path} holds no {word.decode().lower()} in PEM")
        return key, certificate
