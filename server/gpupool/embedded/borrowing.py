"""A pool of one user whose GPUs come from an engine: her own jobs of Slurm, under her own user."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpupool.client.endpoint import private_directory
from gpupool.client.session_file import write_private
from gpupool.embedded import paths
from gpupool.embedded.join import EmbeddedError, is_kept
from gpupool.embedded.options import EmbeddedOptions
from gpupool.providers.kinds import SettingsError
from gpupool.providers.settings import read

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]+)(?::([0-9]{1,5}))?", re.ASCII)


def borrowing(
    options: EmbeddedOptions, file: Path, home: Path, listen: str = "", setting: str = "--listen HOST"
) -> EmbeddedOptions:
    """The options with providers in place of this machine's GPUs.

    Args:
        options: what else the pool is made of.
        file: the providers, see `gpupool.providers.settings`.
        home: the pool's home. It keeps the port: jobs that an earlier pool has left dial it.
        listen: ``host`` or ``host:port`` at which nodes on other machines reach the pool; empty: this machine's name.
        setting: what a person says that with.

    Raises:
        EmbeddedError: the file cannot be used, or other machines cannot reach this one there.
    """
    file = file.absolute()
    try:
        elsewhere = any(one.elsewhere for one in read(file))
    except SettingsError as error:
        raise EmbeddedError(f"{error}.") from None
    reached_at = _listen(listen, home, setting) if elsewhere or listen else ""
    return replace(options, providers=str(file), listen=reached_at)


def _listen(named: str, home: Path, setting: str) -> str:
    """``host:port``. The port is chosen here, once: the pool may be started again, and its nodes come back to it."""
    match = _ADDRESS.fullmatch(named)
    no_address = f"{named[:200]!r} is no address of this machine; write HOST or HOST:PORT."
    if named and match is None:
        raise EmbeddedError(no_address)
    own = socket.gethostname()
    host, port = (own, None) if match is None else match.groups()
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        if match is None and ipaddress.ip_address(address[0]).is_loopback:
            raise EmbeddedError(
                f"Other machines cannot reach this one by its name: {own} is {address[0]} here. "
                f"Name the address that the nodes dial with {setting}."
            )
        if port is not None:
            return named
        return f"{host}:{_port(family, address, home)}"
    except UnicodeError:
        raise EmbeddedError(no_address) from None
    except OSError as error:
        raise EmbeddedError(f"This machine cannot listen at {host[:200]!r}: {error.strerror}.") from None


def _port(family: int, address: Any, home: Path) -> int:
    """That of before if it can be had or the pool has it now, else a free one, which is kept. Raises OSError: there is none."""
    file = paths.port(private_directory(home))
    text = file.read_text()[:8].strip() if file.exists() else ""
    kept = int(text) if text.isascii() and text.isdigit() else 0
    if kept:
        if is_kept(home):
            return kept
        with contextlib.suppress(OSError):
            return _bound(family, address, kept)
    found = _bound(family, address, 0)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(file, f"{found}\n".encode())
    return found


def _bound(family: int, address: Any, port: int) -> int:
    """The port if it is free, of 0 one that is. Raises OSError: it is not."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address[0], port, *address[2:]))
        return int(probe.getsockname()[1])
