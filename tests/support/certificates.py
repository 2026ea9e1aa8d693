"""A certificate authority of one test, and a certificate for this machine's loopback address."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files in PEM. `certificate` is signed by `authority`."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """For 127.0.0.1 and localhost, good for a day."""
    folder.mkdir(exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "pool.pem", folder / "pool.key")
    ca_key, request, extension = folder / "ca.key", folder / "pool.csr", folder / "pool.ext"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    extension.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
    for arguments in (
        ["req", "-x509", *curve, "-keyout", ca_key, "-out", made.authority, "-days", "1", "-subj", "/CN=gpupool test"],
        ["req", *curve, "-keyout", made.key, "-out", request, "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", request, "-CA", made.authority, "-CAkey", ca_key, "-CAcreateserial", "-days", "1",
         "-extfile", extension, "-out", made.certificate],
    ):  # fmt: skip
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
    made.key.chmod(0o600)
    return made
