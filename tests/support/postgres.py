"""A PostgreSQL cluster of a test's own: on a Unix socket in a folder of its own, ended with the block."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path

#: Where Debian, and others, keep the programs that are not on the path.
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def program(name: str) -> str | None:
    found = shutil.which(name)
    if found:
        return str(Path(found).resolve())
    return next((str(folder / name) for folder in _FOLDERS if (folder / name).exists()), None)


def why_not() -> str:
    """Why there can be no cluster here; empty: there can."""
    if util.find_spec("psycopg") is None:
        return "psycopg is not installed (the extra [postgresql])"
    if program("postgres") is None or program("initdb") is None:
        return "there are no PostgreSQL programs here"
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or not _unprivileged()):
        return "PostgreSQL does not run as root, and there is no setpriv or user to run it as"
    return ""


def _unprivileged() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


@dataclass
class Cluster:
    """A running cluster."""

    folder: Path
    prefix: list[str]
    process: subprocess.Popen[bytes] | None = None
    _databases: int = 0

    def database(self) -> str:
        """A new, empty database; its URL."""
        self._databases += 1
        name = f"pool{self._databases}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://gpupool@/{name}?host={self.folder}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """What an administrator of the database may do behind the pool's back."""
        import psycopg

        with psycopg.connect(
            dbname=database, user="gpupool", host=str(self.folder), autocommit=True
        ) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def start(self) -> None:
        """Starts it, again after :meth:`kill`; returns when it answers."""
        postgres = program("postgres")
        assert postgres is not None
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "16MB",
            "max_connections": "40",
            "fsync": "off",  # only this machine's power could tell the difference
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, postgres, "-D", str(self.folder / "data"), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        end = time.monotonic() + 20
        while True:
            try:
                self.sql("SELECT 1")
                return
            except Exception:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: at once, as in a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=20)
            self.process = None


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gpp-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        prefix: list[str] = []
        user = _unprivileged()
        if os.geteuid() == 0 and user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
            prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        folder.chmod(0o755 if os.geteuid() == 0 else 0o700)
        initdb = program("initdb")
        assert initdb is not None
        subprocess.run(
            [*prefix, initdb, "-D", str(folder / "data"), "-U", "gpupool", "-A", "trust", "--no-sync", "-E", "UTF8",
             "--locale=C"],
            check=True, capture_output=True, cwd=folder, timeout=60,
        )  # fmt: skip
        made = Cluster(folder, prefix)
        made.start()
        try:
            yield made
        finally:
            made.end()
