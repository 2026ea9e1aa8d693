"""What a pool server is told, and where it can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpupool.pool.access.hub import HubOptions
from gpupool.pool.access.tls_files import TlsFiles
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects.alerts import NEAR_PERCENT
from gpupool.scheduler.placement import DEFAULT_POLICY

LEDGER_NAME = "pool.sqlite"
SOCKET_NAME = "pool.sock"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `gpupool pool serve` is told.

    Attributes:
        home: directory of ledger and socket, made 0700; None: `GPUPOOL_HOME` or its default.
        socket: the Unix socket; None: `<home>/pool.sock`. Its directory is made 0700.
            Whoever may enter these directories is an admin, so existing ones must be 0700 already.
        listen: `host:port` for TCP besides the socket; every call over it needs a token. None: no TCP.
        timers: how long things may take.
        timers_scale: all of them times this; for tests.
        ledger: URL of a PostgreSQL database for the ledger; None: `<home>/pool.sqlite`.
        standby: while another server leads on that database, wait, and take over when it does not any more.
        journal_kept: days for which past moments can be rebuilt and decisions replayed; None: for ever.
        quotas: milli-GPU that a user may hold at a time; `"*"` is for all others. The ledger's own
            quotas take precedence.
        metrics_listen: `host:port` of Prometheus `/metrics`; None: none.
        tls: certificate and key of the TCP port; None: it is not encrypted, unless `tls_self_signed`.
        tls_self_signed: the TCP port has a certificate that the server makes itself, in its home.
        hub: the JupyterHub whose users may call, over TLS and on the socket only; None: none.
        providers: a file that names engines that lend nodes, see `gpupool.providers.settings`; None: there are none.
        return_nodes: jobs of providers end with this server; else they go on, for the next one.
        show_users: whether users who are no admins see each other's names. What others call their notebooks they never see.
        policy: name of the placement policy, one of `gpupool.scheduler.placement.POLICIES`.
        consolidate: which leases go on elsewhere for a request that fits nowhere.
        alert_percent: of a quota, from which on it counts as nearly used up.
    """

    home: Path | None = None
    socket: Path | None = None
    listen: str | None = None
    timers: Timers = field(default_factory=Timers)
    timers_scale: float = 1.0
    quotas: Mapping[str, int] = field(default_factory=dict)
    metrics_listen: str | None = None
    ledger: str | None = None
    standby: bool = False
    journal_kept: float | None = None
    alert_percent: int = NEAR_PERCENT
    policy: str = DEFAULT_POLICY
    consolidate: Consolidation = Consolidation.IDLE
    tls: TlsFiles | None = None
    tls_self_signed: bool = False
    hub: HubOptions | None = None
    show_users: bool = True
    providers: Path | None = None
    return_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the server can be reached. `port`: of TCP, 0 without."""

    socket: Path
    port: int
    metrics_port: int
    pool: PoolShell
