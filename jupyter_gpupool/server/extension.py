"""The server extension: holds the pool's credentials, and the sessions of all kernels."""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from gpupool.client import child_environment
from gpupool.client.credentials import wants_hub_identity
from gpupool.client.endpoint import ENDPOINT_VARIABLE, EndpointError, resolve_endpoint
from gpupool.client.errors import GpupoolError, RuntimeMissingError
from gpupool.client.holder import MOST_RENEW_SECONDS, RENEW_SECONDS
from gpupool.client.session_file import SESSION_FILE_VARIABLE
from gpupool.client.types import Caller
from gpupool.request.gpu_request import checked_project
from gpupool.shares import Share, ShareError
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float, Unicode, default, validate
from traitlets import TraitError as TraitRefused

from jupyter_gpupool.server.events import SESSION_SCHEMA_ID, SESSION_SCHEMA_PATH, session_event
from jupyter_gpupool.server.handlers import routes
from jupyter_gpupool.server.handlers.personal import Reader, reader_of, said_to
from jupyter_gpupool.server.kernels import provisioner
from jupyter_gpupool.server.kernels.process_exit import when_exited
from jupyter_gpupool.server.kernels.server_address import local_server_url
from jupyter_gpupool.server.pool.connection import PoolConnection, PoolFactory, WrongSettingError
from jupyter_gpupool.server.pool.embedded import EmbeddedPool, not_startable
from jupyter_gpupool.server.pool.embedded import allowed_by_default as embedded_allowed_by_default
from jupyter_gpupool.server.pool.greeting import beginning, greeting
from jupyter_gpupool.server.pool.identity import PoolAccess, PoolCaller, PoolUser
from jupyter_gpupool.server.pool.port import Pool
from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.sessions import Sessions
from jupyter_gpupool.server.watching.busy import BusyTracker
from jupyter_gpupool.server.watching.idle import IdleLimits
from jupyter_gpupool.server.watching.watch import Watch

_KERNEL_ACTIONS: Final = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"


async def connect(endpoint: str, access: PoolAccess) -> Pool:
    """A connection to the pool at ``endpoint``; reaches out at the first call only."""
    # Imported here: gRPC costs half a second, and a server without kernels needs none of it.
    from gpupool.client.pool import PoolClient

    client = PoolClient(endpoint, access.token_file, hub_identity=access.hub_identity, ca_file=access.ca_file)
    return await client.__aenter__()


def _file(setting: str) -> Path | None:
    """The file that a setting names, also by `~`; None: it names none."""
    path = Path(setting)
    try:
        return path.expanduser() if setting else None
    except RuntimeError:  # there is no such home: whoever opens it says so
        return path


class GpuPoolExtension(ExtensionApp):
    """GPUs of a pool for the kernels of this server."""

    name = "jupyter_gpupool"
    app_name = "GPU pool"
    load_other_extensions = True

    pool_endpoint = Unicode(
        help="""The pool: unix:/path, tls:host:port or host:port; with standby servers several, separated by commas.
        Default: $GPUPOOL_ENDPOINT, else the socket in $GPUPOOL_HOME.""",
    ).tag(config=True)
    token_file = Unicode(
        help="File (mode 0600) with the token for a pool on TCP. Default: $GPUPOOL_TOKEN_FILE.",
    ).tag(config=True)
    pool_ca_file = Unicode(
        help="""File with the certificate authority of a pool at tls:host:port. Default: $GPUPOOL_CA_FILE, else
        the system's authorities.""",
    ).tag(config=True)
    hub_identity = Bool(
        help="""Under JupyterHub, use the Hub's user for the pool. The pool then asks the Hub about this server's
        JUPYTERHUB_API_TOKEN. The token is sent only to `pool_endpoint`, which must be tls:host:port or a
        Unix socket. Default: $GPUPOOL_HUB_IDENTITY.""",
    ).tag(config=True)
    user = Unicode(
        help="""The user who requests shares. Default: the user of the token; without a token the Hub's user, else
        the system's.""",
    ).tag(config=True)
    idle_seconds = Float(
        600.0,
        min=0.0,
        help="""Time without use, in seconds, after which a held GPU goes back to the pool. The kernel and its GPU
        memory stay. 0: never.""",
    ).tag(config=True)
    warn_seconds = Float(60.0, min=0.0, help="Seconds between the warning and the release.").tag(config=True)
    idle_seconds_most = Float(
        24 * 3600.0,
        min=0.0,
        help="""The longest idle time that a user may choose for a kernel, and the longest time that Keep adds. It
        is never shorter than idle_seconds. 0: a month.""",
    ).tag(config=True)
    never_release_allowed = Bool(False, help="Whether a user may turn off the idle release of a kernel.").tag(
        config=True
    )
    default_share = Unicode("0.2", help="The share if %%gpu or Attach names none.").tag(config=True)
    default_project = Unicode(
        "",
        help="""The project if %%gpu or Attach names none. Default: the user's only project, else the pool's
        `default`.""",
    ).tag(config=True)
    default_wait_seconds = Float(
        60.0,
        help="Default time in seconds that %%gpu and Attach wait in the queue. Negative: forever.",
    ).tag(config=True)
    renew_seconds = Float(
        RENEW_SECONDS,
        min=0.1,
        max=MOST_RENEW_SECONDS,
        help="""Seconds between two renewals of a lease, at most 10. The pool takes a lease back after 25 s without a
        renewal.""",
    ).tag(config=True)
    return_seconds = Float(
        -1.0,
        help="""If the pool takes a kernel's GPU back for others, the seconds that its CUDA calls wait for another
        one. GPU memory is kept. 0: the calls fail. Negative: forever.""",
    ).tag(config=True)
    session_dir = Unicode(
        help="Folder for session files, one per kernel. Default: in the Jupyter runtime directory."
    ).tag(config=True)
    kernel_environment_enabled = Bool(
        True,
        help="""Give every local kernel the client runtime and the magics, by a kernel provisioner that becomes
        the default. False: no kernel of this server can attach a GPU.""",
    ).tag(config=True)

    start_pool_allowed = Bool(
        help="""Whether a page may start a pool on this machine if none is configured and none answers. Default:
        true, but false under JupyterHub.""",
    ).tag(config=True)
    start_pool_providers = Unicode(
        help="""A file of engines (TOML), such as Slurm, from which a pool that a page starts borrows GPUs, as jobs of
        the server's user. Empty: it lends this machine's GPUs.""",
    ).tag(config=True)
    start_pool_listen = Unicode(
        help="""The address of this machine that the nodes of `start_pool_providers` dial, HOST or HOST:PORT. Empty: this
        machine's name, and a free port.""",
    ).tag(config=True)
    show_panel = Bool(False, help="Show the GPU panel when a page opens for the first time.").tag(config=True)

    #: See :data:`jupyter_gpupool.server.pool.connection.PoolFactory`.
    pool_factory: PoolFactory = staticmethod(connect)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sessions: Sessions | None = None
        self._watch: Watch | None = None
        self._busy: BusyTracker | None = None
        self._starting: asyncio.Lock | None = None
        self._pool: PoolConnection | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._caller = PoolCaller()
        self._embedded = EmbeddedPool()
        #: Kernel id → id of the Jupyter session whose notebook it is called by.
        self.named_by: dict[str, str] = {}

    @default("hub_identity")
    def _default_hub_identity(self) -> bool:
        return wants_hub_identity() and not self.token_file

    @default("pool_endpoint")
    def _default_pool_endpoint(self) -> str:
        try:
            return resolve_endpoint(None)
        except EndpointError:
            # The connection says what is wrong with it.
            return os.environ[ENDPOINT_VARIABLE]

    @default("start_pool_allowed")
    def _default_start_pool_allowed(self) -> bool:
        return embedded_allowed_by_default()

    @default("session_dir")
    def _default_session_dir(self) -> str:
        return str(Path(self.server.runtime_dir) / "gpupool")

    @validate("default_share")
    def _check_default_share(self, proposal: Any) -> str:
        try:
            Share.parse(proposal["value"])
        except ShareError as error:
            raise TraitRefused(str(error)) from None
        return str(proposal["value"])

    @validate("idle_seconds", "warn_seconds", "idle_seconds_most", "default_wait_seconds", "return_seconds")
    def _check_seconds(self, proposal: Any) -> float:
        if not math.isfinite(proposal["value"]):
            name = proposal["trait"].name
            raise TraitRefused(
                f"c.GpuPoolExtension.{name} is a number of seconds, and {proposal['value']} is none. "
                f"What stands for ever: {proposal['trait'].help}"
            )
        return float(proposal["value"])

    @validate("default_project")
    def _check_default_project(self, proposal: Any) -> str:
        try:
            return checked_project(str(proposal["value"]))
        except ValueError as error:
            raise TraitRefused(str(error)) from None

    @property
    def server(self) -> Any:
        """The Jupyter server, which links itself before it initializes the extension."""
        return self.serverapp

    # --- called by the server -------------------------------------------------------------

    def initialize_settings(self) -> None:
        self._busy = BusyTracker(self.server.kernel_manager)
        events = self.server.event_logger
        events.register_event_schema(SESSION_SCHEMA_PATH)
        events.add_listener(schema_id=_KERNEL_ACTIONS, listener=self._kernel_action)
        if self.kernel_environment_enabled:
            provisioner.install(self.server)
        if self.show_panel:
            page = self.server.web_app.settings.setdefault("page_config_data", {})
            page["gpupoolShowPanel"] = "true"

    def initialize_handlers(self) -> None:
        self.handlers.extend(routes())

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Called when the event loop runs."""
        self._greeting = asyncio.ensure_future(self._say_which_pool())

    async def _say_which_pool(self) -> None:
        """In the background: who opens a page at once does not wait for it."""
        try:
            # gRPC takes half a second, during which the server would answer nobody.
            await asyncio.to_thread(importlib.import_module, "gpupool.client.pool")
            await self.sessions()
            assert self._pool is not None
            usable, line = await greeting(self._pool)
        except GpupoolError as error:
            usable, line = False, f"{beginning(self.pool_endpoint, self.known_user)} {error}"
        self.log.log(logging.INFO if usable else logging.WARNING, "%s", line)

    async def stop_extension(self) -> None:
        """Called when the server ends: gives everything back."""
        if self._greeting is not None:
            self._greeting.cancel()
        provisioner.uninstall()
        if self._watch is not None:
            await self._watch.stop()
        if self._busy is not None:
            self._busy.close()
        await self._caller.stop()
        if self._sessions is not None:
            await self._sessions.stop("exit")
        if self._pool is not None:
            await self._pool.close()
        await self._embedded.stop()

    # --- what handlers and the provisioner use ----------------------------------------------

    @property
    def idle_limits(self) -> IdleLimits:
        """Read at each use, so that configuration may change."""
        return IdleLimits(
            self.idle_seconds, self.warn_seconds, self.idle_seconds_most, self.never_release_allowed
        )

    @property
    def busy(self) -> BusyTracker:
        assert self._busy is not None, "the server initializes the extension first"
        return self._busy

    @property
    def watch(self) -> Watch:
        assert self._watch is not None, "sessions() comes first"
        return self._watch

    @property
    def is_admin(self) -> bool:
        """Whether the pool takes this server's user for an administrator, as far as it has said (:meth:`caller`)."""
        if self._sessions is not None:
            self._caller.learn_soon(self._sessions.pool)
        return self._caller.is_admin(self.known_user)

    @property
    def wrong_setting(self) -> str:
        """Which setting keeps this server from asking the pool, as far as is known; empty: none."""
        return self._pool.problem if self._pool is not None else ""

    @property
    def startable(self) -> Literal["no", "lends", "borrows"]:
        """Whether a page may start a pool here: none is configured, and none answers, or not any more."""
        may_start = (
            self.start_pool_allowed
            and not self.token_file
            and not self.hub_identity
            and (self._pool is None or not self._pool.answers)
            and self._embedded.fits(self.pool_endpoint)
        )
        if not may_start:
            return "no"
        return "borrows" if self.start_pool_providers else "lends"

    async def start_pool(self) -> None:
        """Starts a pool on this machine. Raises PoolRefusedError: it may not. EmbeddedError: it cannot."""
        await self.sessions()
        if self.startable == "no":
            raise not_startable()
        await self._embedded.start(self.start_pool_providers, self.start_pool_listen)

    async def caller(self) -> Caller | None:
        """Whom the pool takes this server's user for; None: it does not say now. Asked once a minute at most."""
        sessions = await self.sessions()
        return await self._caller.learn(sessions.pool)

    @property
    def known_user(self) -> str:
        """Whom this server asks for; empty: only the pool knows, and has not said."""
        return self._pool.known_user if self._pool is not None else self.user

    async def pool_user(self) -> str:
        """The same, from the pool where only it knows. Raises GpupoolError: it does not say."""
        await self.sessions()
        assert self._pool is not None
        return await self._pool.user()

    @property
    def reader(self) -> Reader:
        """Who reads what this server says."""
        return reader_of(self.known_user, self._sessions)

    async def sessions(self) -> Sessions:
        """The sessions of this server; starts the watch at the first call.

        Not done when the extension loads: the event loop does not run yet then.

        Raises:
            WrongSettingError: session files cannot be written.
        """
        if self._sessions is None:
            self._starting = self._starting or asyncio.Lock()
            async with self._starting:
                if self._sessions is None:
                    await self._start()
        assert self._sessions is not None
        return self._sessions

    async def _start(self) -> None:
        access = PoolAccess(
            token_file=_file(self.token_file),
            ca_file=_file(self.pool_ca_file),
            hub_identity=self.hub_identity,
        )
        user = PoolUser(self.user, by_token=access.is_by_token(self.pool_endpoint))
        self._pool = PoolConnection(
            self.pool_endpoint, access, user, self.pool_factory, lambda said: said_to(self.reader, said)
        )
        try:
            sessions = Sessions(
                self._pool,
                Path(self.session_dir),
                on_change=self._session_changed,
                renew_seconds=self.renew_seconds,
                return_seconds=self.return_seconds if self.return_seconds >= 0 else None,
                own_directory=self.session_dir == self._default_session_dir(),
            )
        except GpupoolError as error:
            raise WrongSettingError(
                f"{error} It is c.GpuPoolExtension.session_dir of this server."
            ) from error
        await sessions.start()
        self._watch = Watch(
            sessions,
            self.busy,
            limits=lambda: self.idle_limits,
            live_kernels=self.server.kernel_manager.list_kernel_ids,
            on_active=self._note_activity,
        )
        self._watch.start()
        self._sessions = sessions
        self._caller.learn_soon(self._pool)

    async def kernel_environment(self, kernel_id: str, environment: dict[str, str]) -> dict[str, str]:
        """Variables for one launch of a kernel: its capability's file, session file and client runtime."""
        session = await (await self.sessions()).launch(kernel_id)
        variables = {
            SESSION_FILE_VARIABLE: str(session.files.session.path),
            "GPUPOOL_KERNEL_ID": kernel_id,
            "GPUPOOL_CAPABILITY_FILE": str(session.files.capability),
            "GPUPOOL_SERVER_URL": local_server_url(self.server),
        }
        if self.server.certfile:
            # The certificate is issued for a public name; the kernel comes over loopback.
            variables["GPUPOOL_SERVER_CERTIFICATE"] = str(Path.cwd() / self.server.certfile)
        try:
            variables.update(child_environment.environment(None, session.files.session.path, environment))
        except RuntimeMissingError as error:
            self.log.warning("kernels start without the GPU client runtime: %s", error)
        return variables

    def kernel_launched(self, kernel_id: str, pid: int | None) -> None:
        self.busy.watch(kernel_id)
        launch = self._sessions.get(kernel_id) if self._sessions is not None else None
        if launch is None or pid is None:
            return

        def exited() -> None:
            # A restart may have put the next launch in its place meanwhile.
            if self._sessions is None or self._sessions.get(kernel_id) is not launch:
                return
            if not self._is_being_ended(kernel_id):
                self._sessions.note_death(kernel_id)
            self.kernel_gone(kernel_id)

        launch.when_closed(when_exited(pid, exited))

    def _is_being_ended(self, kernel_id: str) -> bool:
        """Whether somebody has asked for the end of its process: a shutdown, a restart, or the end of the server."""
        kernels = self.server.kernel_manager
        return kernel_id not in kernels or kernels.get_kernel(kernel_id).shutting_down

    def kernel_gone(self, kernel_id: str) -> None:
        self.busy.forget(kernel_id)
        if self._sessions is not None:
            self._sessions.end_in_background(kernel_id)

    # --- what happens by itself -------------------------------------------------------------

    async def _kernel_action(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """Shutdown and restart of any kernel; a launch by our provisioner came before."""
        kernel_id = data.get("kernel_id")
        if not isinstance(kernel_id, str) or data.get("status") == "error":
            return
        # Any user may post such an event, so it is only taken as a hint to look.
        alive = kernel_id in self.server.kernel_manager.list_kernel_ids()
        if data.get("action") == "shutdown" and not alive:
            self.kernel_gone(kernel_id)
        elif data.get("action") in ("start", "restart") and alive and not self._watched(kernel_id):
            self.busy.watch(kernel_id)

    def _watched(self, kernel_id: str) -> bool:
        """Since its launch; to begin anew would forget the cells that run."""
        ours = self._sessions is not None and self._sessions.get(kernel_id) is not None
        return ours and kernel_id in self.busy.watched()

    def _session_changed(self, session: KernelSession) -> None:
        try:
            self.server.event_logger.emit(schema_id=SESSION_SCHEMA_ID, data=session_event(session))
        except Exception:
            # A site's event handler may fail; the state itself is in the REST API.
            self.log.exception("the session event of kernel %s was not emitted", session.kernel_id)

    def _note_activity(self, kernel_ids: list[str]) -> None:
        """Neither a Hub may cull a server whose GPU works without any output, nor the server such a kernel."""
        now = datetime.now(UTC)
        self.server.web_app.settings["jupyter_gpupool_last_activity"] = now
        for kernel_id in kernel_ids:
            if kernel_id in self.server.kernel_manager:
                self.server.kernel_manager.get_kernel(kernel_id).last_activity = now


__all__ = ["GpuPoolExtension", "GpupoolError", "connect"]

main = launch_new_instance = GpuPoolExtension.launch_instance
