"""A pool of one user whose GPUs come from an engine: her own jobs of Slurm, under her own user."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpupool.embedded.join import EmbeddedError
from gpupool.embedded.options import EmbeddedOptions
from gpupool.providers.kinds import SettingsError
from gpupool.providers.settings import read

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]+)(?::([0-9]{1,5}))?", re.ASCII)


def borrowing(options: EmbeddedOptions, file: Path, listen: str = "") -> EmbeddedOptions:
    """The options with providers in place of this machine's GPUs.

    Args:
        options: what else the pool is made of.
        file: the providers, see `gpupool.providers.settings`.
        listen: ``host`` or ``host:port`` at which nodes on other machines reach the pool; empty: this machine's name.

    Raises:
        EmbeddedError: the file cannot be used, or other machines cannot reach this one there.
    """
    file = file.absolute()
    try:
        elsewhere = any(one.elsewhere for one in read(file))
    except SettingsError as error:
        raise EmbeddedError(f"{error}.") from None
    reached_at = _listen(listen) if elsewhere or listen else ""
    return replace(options, providers=str(file), listen=reached_at)


def _listen(named: str) -> str:
    """``host:port``. The port is chosen here, once: the pool may be started again, and its nodes come back to it."""
    match = _ADDRESS.fullmatch(named)
    if named and match is None:
        raise EmbeddedError(f"{named[:200]!r} is no address of this machine; write HOST or HOST:PORT.")
    own = socket.gethostname()
    host, port = (own, None) if match is None else match.groups()
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        if match is None and ipaddress.ip_address(address[0]).is_loopback:
            raise EmbeddedError(
                f"Other machines cannot reach this one by its name: {own} is {address[0]} here. "
                "Name the address that the nodes dial with --listen HOST."
            )
        if port is not None:
            return named
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
            return f"{host}:{probe.getsockname()[1]}"
    except OSError as error:
        raise EmbeddedError(f"This machine cannot listen at {host[:200]!r}: {error.strerror}.") from None
