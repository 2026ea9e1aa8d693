"""A certificate that the pool makes for itself: it is its own authority, and whoever has its file trusts this pool alone."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpupool.client.session_file import write_private
from gpupool.pool.access.tls_files import TlsFiles

_VALID: Final = datetime.timedelta(days=825)
#: At a start, one that ends sooner is replaced.
_LEFT: Final = datetime.timedelta(days=90)
_COMMON_NAME_LETTERS: Final = 64

logger = structlog.get_logger(__name__)


def own_certificate(folder: Path, host: str) -> TlsFiles:
    """Files of a certificate for `host`, in `folder` of mode 0700; made unless a good one is there.

    Args:
        folder: where they are kept.
        host: the name or address that callers dial; an IPv6 address without brackets.

    Raises:
        OSError: they cannot be written.
        ValueError: `host` cannot stand in a certificate.
    """
    files = TlsFiles(folder / "pool.pem", folder / "pool.key")
    name = _name(host)
    if not _is_good(files, name):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(files, host, name)
        logger.warning(
            "made a certificate: nodes and callers need a copy of it", file=str(files.certificate), host=host
        )
    return files


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _is_good(files: TlsFiles, name: x509.GeneralName) -> bool:
    try:
        found = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    lasts = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > _LEFT
    return lasts and name in names and key.public_key() == found.public_key()


def _make(files: TlsFiles, host: str, name: x509.GeneralName) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gpupool {host}"[:_COMMON_NAME_LETTERS])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of nodes may be behind.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The key first: a certificate without its key is replaced at the next start.
    write_private(files.key, secret)
    write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
