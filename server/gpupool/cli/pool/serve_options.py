"""Options of `gpupool pool serve`: who may call, and over what; and what a simulated pool shares with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpupool.cli.common.options import duration

if TYPE_CHECKING:
    from gpupool.pool.access.hub import HubOptions
    from gpupool.pool.access.tls_files import TlsFiles

Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where shares are placed: shadow_price (the default), best_fit, binpack, fgd, gpu_packing, dot_product, "
        "spread or random.",
        show_default=False,
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Use TLS on the TCP port, with this certificate (PEM, with its chain). Callers write "
        "tls:HOST:PORT.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The certificate's key (PEM, mode 0600).", show_default=False),
]
HubApiUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Accept the users of this JupyterHub, with the tokens of their servers: "
        "https://hub.example.org/hub/api. The Hub's admins are admins here. Its groups may be "
        "members of projects (@group).",
        show_default=False,
    ),
]
HubBelieved = Annotated[
    float,
    typer.Option(
        parser=duration,
        metavar="TIME",
        help="How long to cache a user's identity from the Hub. A token that is revoked there works "
        "here no longer than that.",
    ),
]
HubGrace = Annotated[
    float,
    typer.Option(
        parser=duration,
        metavar="TIME",
        help="Extra time to use the cached identity while the Hub can't be reached.",
    ),
]
ShowUsers = Annotated[
    bool,
    typer.Option(
        "--show-users/--hide-users",
        help="Whether users see who holds the other shares and requests. They never see the names of "
        "other users' notebooks.",
    ),
]

Standby = Annotated[
    bool,
    typer.Option(
        "--standby",
        help="While another server leads on the same ledger in PostgreSQL, wait, and take over when it ends. Start all "
        "servers of a pool so; callers name them all: --pool HOST:PORT,HOST:PORT.",
    ),
]
TlsSelfSigned = Annotated[
    bool,
    typer.Option(
        "--tls-self-signed",
        help="Use TLS on the TCP port, with a certificate that the pool makes in $GPUPOOL_HOME/tls. Borrowed nodes "
        "trust it; other callers need GPUPOOL_CA_FILE=$GPUPOOL_HOME/tls/pool.pem.",
    ),
]
ReturnNodes = Annotated[
    bool,
    typer.Option(
        "--return-nodes",
        help="When the server ends, give all borrowed nodes back. Without it they continue, and the next server finds them.",
    ),
]
Providers = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Borrow nodes from the engines in this file (TOML): processes of this machine, Slurm, Kubernetes. "
        "`gpupool provider list` shows them.",
        show_default=False,
    ),
]


def tls_files(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Both files, or None without TLS.

    Raises:
        typer.BadParameter: only one of them is given.
    """
    from gpupool.pool.access.tls_files import TlsFiles

    if certificate is not None and key is not None:
        return TlsFiles(certificate, key)
    if certificate is not None or key is not None:
        raise typer.BadParameter("--tls-certificate and --tls-key go together; give both")
    return None


def hub_options(api_url: str | None, believed: float, grace: float) -> HubOptions | None:
    """What the pool is told of the Hub; None without one. Times are seconds.

    Raises:
        typer.BadParameter: `believed` is below one second.
    """
    from gpupool.pool.access.hub import HubOptions
    from gpupool.pool.access.hub_cache import HubTimes

    if api_url is None:
        return None
    if believed < 1:
        raise typer.BadParameter(f"--hub-believed is {believed:g} s; it must be at least 1 s")
    return HubOptions(api_url, HubTimes(believed, grace))
