"""`gpupool lab`: a pool and a node on this machine, and JupyterLab in the current folder."""

from __future__ import annotations

import contextlib
import html
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from gpupool.cli.common import exits, interrupts
from gpupool.cli.common.options import refuse_options
from gpupool.cli.top import up
from gpupool.cli.top.up import tell
from gpupool.client.endpoint import ENDPOINT_VARIABLE, private_directory
from gpupool.client.errors import GpupoolError

if TYPE_CHECKING:
    from gpupool.embedded.join import Lifeline
    from gpupool.embedded.options import EmbeddedOptions

#: Of the Jupyter server's extension, by name; None: it is left as it is.
Settings: TypeAlias = dict[str, str | int | bool | None]

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.2
#: A pool that ends so often in so many seconds is not started again.
_MOST_ENDS: Final = 3
_ENDS_SECONDS: Final = 60.0
#: Options of a pool that this command starts.
_OF_POOL: Final = (
    "driver", "software_gpus", "memory_mib", "quota", "notice_seconds", "no_restart", "providers", "listen", "port_range",
)  # fmt: skip


@dataclass(slots=True)
class Lab:
    """JupyterLab as a child process.

    Attributes:
        process: it.
        log: what it writes.
        began: when it was started, Unix time in seconds.
        port: of 127.0.0.1; 0 until it is ready.
    """

    process: subprocess.Popen[bytes]
    log: Path
    began: float
    port: int = 0

    def wait_ready(self) -> None:
        """Raises SystemExit with the end of the log when it ends or does not answer in time."""
        from gpupool.embedded.loopback import answers
        from gpupool.embedded.service import log_end

        deadline = time.monotonic() + _START_SECONDS
        while not (self._has_port() and answers(f"http://127.0.0.1:{self.port}/api")):
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                how = "ended while starting" if ended else f"did not answer within {_START_SECONDS:g} s"
                exits.say(f"JupyterLab {how}. The end of {self.log}:")
                print(log_end(self.log), file=sys.stderr)
                raise typer.Exit(exits.FAILED)
            time.sleep(_LOOK_SECONDS)

    def _has_port(self) -> bool:
        """Whether it has written which port it took.

        It tries others if one is taken, and another program may take one between our look and its start.
        """
        from jupyter_core.paths import jupyter_runtime_dir

        written = Path(jupyter_runtime_dir()) / f"jpserver-{self.process.pid}.json"
        with contextlib.suppress(OSError, ValueError):
            # An older file was left behind by another server that had the same process id.
            if written.stat().st_mtime >= self.began:
                self.port = int(json.loads(written.read_bytes())["port"])
        return self.port != 0

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def lab(
    context: typer.Context,
    root_dir: Annotated[
        Path | None,
        typer.Option(help="Folder that JupyterLab shows [default: the current one].", show_default=False),
    ] = None,
    notebook: Annotated[
        str | None,
        typer.Option(
            help="Notebook to open, relative to that folder [default: the quickstart, which is copied into a folder "
            "without notebooks].",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of JupyterLab. If it is taken, or 0, a free one is used."),
    ] = 8888,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    panel: Annotated[
        bool,
        typer.Option("--panel/--no-panel", help="Show the GPU panel when the page opens for the first time."),
    ] = True,
    home: up.Home = None,
    driver: up.Driver = "auto",
    software_gpus: up.SoftwareGpus = 2,
    memory_mib: up.MemoryMib = 8192,
    quota: up.Quotas = None,
    notice_seconds: up.NoticeSeconds = None,
    no_restart: up.NoRestart = False,
    providers: up.Providers = None,
    listen: up.Listen = "",
    port_range: up.Ports = None,
    idle_seconds: Annotated[
        int | None,
        typer.Option(
            min=0, help="Release a GPU after this time without use, in seconds.", show_default=False
        ),
    ] = None,
    warn_seconds: Annotated[
        int | None, typer.Option(min=0, help="Warn this long before, in seconds.", show_default=False)
    ] = None,
    token: Annotated[
        str | None, typer.Option(hidden=True, help="Token of JupyterLab (tests); else a random one.")
    ] = None,
) -> None:
    """Start a pool with the GPUs of this machine, and JupyterLab with it in the current folder.

    Needs no GPU: where there is none it lends software GPUs. Ctrl-C ends JupyterLab, and the pool unless something else
    uses it. With $GPUPOOL_ENDPOINT set JupyterLab uses that pool, and none is started.

    \b
    Examples:
      gpupool lab
      gpupool lab --root-dir notebooks --port 9000 --no-browser
      gpupool lab --driver software --software-gpus 4
      gpupool lab --providers slurm.toml
    """
    if find_spec("jupyterlab") is None:
        exits.say("JupyterLab is not installed here. Run: pip install 'jupyter-gpupool[lab]'")
        raise typer.Exit(exits.FAILED)
    if endpoint := os.environ.get(ENDPOINT_VARIABLE):
        refuse_options(
            context, _OF_POOL, f"${ENDPOINT_VARIABLE} names a pool, {endpoint}, so none is started"
        )
    up.refuse_without_effect(context, driver, providers)
    with exits.clear_errors():
        folder = (root_dir or Path()).absolute()
        if not folder.is_dir():
            raise typer.BadParameter(f"{folder} is no folder", param_hint="--root-dir")
        named = _notebook_below(folder, notebook) if notebook else notebook
    from gpupool.embedded import paths
    from gpupool.embedded.loopback import free_port

    directory = up.use_home(home)
    options = up.options_of(
        driver, software_gpus, memory_mib, quota, notice_seconds, no_restart, providers, listen, port_range
    )
    token = token or secrets.token_hex(24)
    # Settings of this machine's Jupyter servers may name another pool, and who one is there.
    settings: Settings = {
        "idle_seconds": idle_seconds, "warn_seconds": warn_seconds, "show_panel": panel,
        "pool_endpoint": endpoint or f"unix:{paths.pool_socket(directory)}",
        **({} if endpoint else {"hub_identity": False, "token_file": ""}),
    }  # fmt: skip
    pool = _Pool(directory, options)
    started: Lab | None = None
    status = exits.OK
    with exits.clear_errors(), interrupts.as_keyboard_interrupt():
        private_directory(directory)
        opens = named if named is not None else _first_notebook(folder)
        try:
            if endpoint:
                tell(f"The pool is {endpoint}, as ${ENDPOINT_VARIABLE} says.")
            else:
                pool.start()
            tell("Starting JupyterLab …")
            started = _start(folder, directory, port or free_port(), token, settings)
            started.wait_ready()
            _record(directory, started, pool.lifeline)
            path = f"/tree/{urllib.parse.quote(opens)}" if opens else ""
            url = f"http://127.0.0.1:{started.port}/lab{path}?token={token}"
            tell(f"ready {url}")
            tell("Ctrl-C ends JupyterLab and what was started with it.")
            if not no_browser:
                with _needed_by_nobody():
                    _open_browser(url, directory)
            status = _supervise(started, pool)
        except KeyboardInterrupt:
            tell("\nStopping …")
        finally:
            with interrupts.ignored():
                if started is not None:
                    started.stop()
                if pool.lifeline is not None:
                    up.leave(pool.lifeline)
    raise typer.Exit(status)


def _notebook_below(folder: Path, name: str) -> str:
    """The notebook as JupyterLab names it; one that it could not open is refused before anything is started."""
    place = Path(os.path.normpath(folder / name))
    if not place.is_file():
        raise typer.BadParameter(f"there is no file {place}", param_hint="--notebook")
    if not place.is_relative_to(folder):
        raise typer.BadParameter(
            f"{place} is not in the folder that JupyterLab shows, {folder}: use --root-dir {place.parent}",
            param_hint="--notebook",
        )
    return str(place.relative_to(folder))


def _first_notebook(folder: Path) -> str:
    """Which notebook a newcomer sees first; empty: the folder as it was left."""
    from gpupool.embedded.examples import QUICKSTART, NoExamplesError, copy_quickstart

    try:
        copied = copy_quickstart(folder)
    except (NoExamplesError, OSError) as error:
        tell(f"The quickstart was not copied: {error}")
        return ""
    if copied:
        tell(f"{QUICKSTART} was copied into {folder}.")
    return QUICKSTART if copied else ""


def _start(folder: Path, directory: Path, port: int, token: str, settings: Settings) -> Lab:
    from gpupool.embedded import paths
    from gpupool.embedded.service import bound_to_us

    # -P: a file of the user's folder must not stand for a module of Python.
    command = [
        *(sys.executable, "-P", "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=50", f"--ServerApp.root_dir={folder}"),
        # As the address is that is printed, whatever other servers of this machine have.
        *("--ServerApp.base_url=/", "--ServerApp.certfile=", "--ServerApp.keyfile="),
        *(f"--GpuPoolExtension.{name}={value}" for name, value in settings.items() if value is not None),
    ]
    if os.geteuid() == 0:
        command.append("--allow-root")
    paths.logs(directory).mkdir(mode=0o700, exist_ok=True)
    log = paths.logs(directory) / "jupyter.log"
    # A second less: clocks of file systems are coarse.
    began = time.time() - 1
    with log.open("ab") as output:
        process = subprocess.Popen(
            bound_to_us(command),
            # The token travels by environment: the argument list of a process is public.
            env={**os.environ, "JUPYTER_TOKEN": token, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches this command alone, which ends everything in order.
            start_new_session=True,
            cwd=folder,
        )
    return Lab(process, log, began)


class _Pool:
    """The pool that was started for JupyterLab.

    Attributes:
        lifeline: None: JupyterLab uses another, or this one has ended and could not be started again.
    """

    def __init__(self, directory: Path, options: EmbeddedOptions) -> None:
        self.directory = directory
        self.lifeline: Lifeline | None = None
        self._options = options
        self._ends: deque[float] = deque(maxlen=_MOST_ENDS)

    def start(self) -> None:
        self.lifeline = up.joined(self.directory, self._options)

    def hear(self, lifeline: Lifeline) -> None:
        """Says what its keeper tells. If the pool has ended it is started again, for JupyterLab outlasts it.

        Notebooks, and what their kernels hold in the memory of this machine, need no pool.
        """
        try:
            up.report(lifeline)
            return
        except typer.Exit:  # why is said
            lifeline.close()
            self.lifeline = None
        self._ends.append(time.monotonic())
        if len(self._ends) < _MOST_ENDS or self._ends[-1] - self._ends[0] > _ENDS_SECONDS:
            tell("JupyterLab goes on. The pool is started again …")
            try:
                self.start()
                return
            except typer.Exit:  # why is said
                pass
            except (GpupoolError, OSError) as error:
                exits.say(str(error))
        tell("JupyterLab goes on without a pool. To start one: gpupool up")


def _supervise(started: Lab, pool: _Pool) -> int:
    """Until JupyterLab ends."""
    while True:
        code = started.process.poll()
        if code is not None:
            tell(f"JupyterLab ended with status {code}.")
            return exits.OK if code == 0 else exits.FAILED
        lifeline = pool.lifeline
        readable, _, _ = select.select([lifeline] if lifeline else [], [], [], _LOOK_SECONDS)
        if readable and lifeline is not None:
            pool.hear(lifeline)
            _record(pool.directory, started, pool.lifeline)


def _record(directory: Path, started: Lab, lifeline: Lifeline | None) -> None:
    """What runs now, for people and scripts that look into the home."""
    pids = dict(lifeline.ready.pids) if lifeline is not None else {}
    pids["JupyterLab"] = started.process.pid
    written = directory / f"lab.json.{os.getpid()}"
    with _needed_by_nobody():
        written.write_text(json.dumps({"port": started.port, "pids": pids}))
        written.rename(directory / "lab.json")


@contextlib.contextmanager
def _needed_by_nobody() -> Iterator[None]:
    """What cannot be written on a full disk is said, and JupyterLab goes on with all its kernels."""
    try:
        yield
    except OSError as error:
        exits.say(f"{error.filename or 'a file'} was not written: {error.strerror}")


def _open_browser(url: str, directory: Path) -> None:
    """Opens the page by a private file that leads to it: the argument list of a process is public."""
    opener = (
        shutil.which("xdg-open") if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else None
    )
    if opener:
        page = directory / "open.html"
        page.unlink(missing_ok=True)
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url, quote=True)}">\n'
        )
        subprocess.Popen([opener, page.as_uri()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
