"""`make lab`: a pool, a node with GPUs (software GPUs where there are none) and JupyterLab, in one command.

Starts three child processes, waits until each really answers, opens the quickstart notebook and
ends everything it started on Ctrl-C. A pool or node that dies is started again, as a service
manager would do it; JupyterLab ending ends the command.
"""

from __future__ import annotations

import argparse
import ctypes
import html
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = "examples/quickstart.ipynb"
PR_SET_PDEATHSIG = 1


def say(text: str) -> None:
    """Prints at once: whoever starts this in a pipe waits for the address."""
    print(text, flush=True)  # noqa: T201 - this is a command line program


def _die_with_parent() -> None:
    """In the child, before exec: a killed launcher must not leave services behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Service:
    """One child process, its log file, and how to know that it works."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    ready: Callable[[], bool]
    restarts: bool = True
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    started_at: float = field(default=0.0, init=False)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the launcher alone, which ends the services in order.
                start_new_session=True,
                preexec_fn=_die_with_parent,
                cwd=ROOT if (ROOT / "examples").is_dir() else None,
            )
        self.started_at = time.monotonic()

    def wait_ready(self, seconds: float) -> None:
        """Raises SystemExit with the end of the log when the service ends or does not answer in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                raise SystemExit(
                    f"{self.name} ended while starting. The end of {self.log}:\n{self._log_end()}"
                )
            if self.ready():
                return
            time.sleep(0.1)
        raise SystemExit(
            f"{self.name} did not answer within {seconds:.0f} s. The end of {self.log}:\n{self._log_end()}"
        )

    def stop(self, seconds: float) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)

    def ended(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def _log_end(self) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        except OSError:
            return "(no log)"


def free_port(preferred: int) -> int:
    """`preferred` when nobody listens there on loopback, else one that the system picks."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no free port on 127.0.0.1")


def answers(url: str) -> bool:
    """Whether anything with status 200 is there within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own loopback address
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _pool_options(options: argparse.Namespace) -> list[str]:
    words = [word for quota in options.quota for word in ("--quota", quota)]
    return words if options.notice_seconds is None else [*words, "--notice", str(options.notice_seconds)]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The options; ``argv`` None: those of this process."""
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__)
    state = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    parser.add_argument("--home", type=Path, default=state / "gpupool" / "lab", help="state and logs")
    parser.add_argument("--root-dir", type=Path, default=ROOT, help="folder that JupyterLab shows")
    parser.add_argument("--notebook", default=QUICKSTART, help="notebook to open, relative to --root-dir")
    parser.add_argument("--port", type=int, default=8888, help="0: any free port")
    parser.add_argument("--token", default=None, help="Jupyter token (default: a random one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.add_argument("--no-restart", action="store_true", help="do not start a dead pool or node again")
    parser.add_argument("--driver", default="auto", help="auto, software, nvidia or a path to libcuda.so.1")
    parser.add_argument("--software-gpus", type=int, default=2)
    parser.add_argument("--memory-mib", type=int, default=8192, help="memory of each software GPU")
    parser.add_argument("--idle-seconds", type=int, default=None, help="release a GPU after this time unused")
    parser.add_argument("--warn-seconds", type=int, default=None, help="warn this long before")
    parser.add_argument(
        "--notice-seconds", type=float, help="say this long before that a GPU is taken back for others"
    )
    parser.add_argument(
        "--quota", action="append", default=[], help="user=GPUs, such as ann=0.5, passed to the pool"
    )
    return parser.parse_args(argv)


def services(options: argparse.Namespace, port: int, token: str) -> list[Service]:
    """What has to run, in the order in which it is started; each waits for the one before."""
    home: Path = options.home
    logs = private_directory(home) / "logs"
    logs.mkdir(exist_ok=True)
    environment = dict(os.environ, GPUPOOL_HOME=str(home), PYTHONUNBUFFERED="1")
    gpupool = [sys.executable, "-m", "gpupool.cli.main"]

    def listing() -> bool:
        listed = subprocess.run(
            [*gpupool, "gpu", "list", "--json"], env=environment, capture_output=True, text=True, check=False
        )
        if listed.returncode != 0:
            return False
        found = json.loads(listed.stdout)
        devices = found["devices"] if isinstance(found, dict) else found
        return any(device.get("healthy") for device in devices)

    pool = Service(
        "the pool",
        [*gpupool, "pool", "serve", *_pool_options(options)],
        environment,
        logs / "pool.log",
        (home / "pool.sock").exists,
        restarts=not options.no_restart,
    )
    node = Service(
        "the node",
        [
            *gpupool,
            "node",
            "start",
            "--driver",
            options.driver,
            "--software-gpus",
            str(options.software_gpus),
            "--memory-mib",
            str(options.memory_mib),
            # One machine, one user: usage may be as live as the sidebar shows it.
            "--heartbeat-seconds",
            "1",
        ],
        environment,
        logs / "node.log",
        listing,
        restarts=not options.no_restart,
    )
    lab_command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={options.root_dir}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        lab_command.append("--allow-root")
    if options.idle_seconds is not None:
        lab_command.append(f"--GpuPoolExtension.idle_seconds={options.idle_seconds}")
    if options.warn_seconds is not None:
        lab_command.append(f"--GpuPoolExtension.warn_seconds={options.warn_seconds}")
    lab = Service(
        "JupyterLab",
        lab_command,
        # The token travels by environment: the argument list of a process is public.
        dict(environment, JUPYTER_TOKEN=token),
        logs / "jupyter.log",
        lambda: answers(f"http://127.0.0.1:{port}/api"),
        restarts=False,
    )
    return [pool, node, lab]


def open_browser(url: str, home: Path) -> None:
    """Opens the page by a private file that leads to it: the argument list of a process is public."""
    opener = (
        shutil.which("xdg-open") if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else None
    )
    if opener:
        page = home / "open.html"
        page.unlink(missing_ok=True)
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url, quote=True)}">\n'
        )
        subprocess.Popen([opener, page.as_uri()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def record(home: Path, port: int, running: list[Service]) -> None:
    """What runs now, for people and scripts that look into the state folder."""
    pids = {service.name: service.process.pid for service in running if service.process}
    (home / "lab.json").write_text(json.dumps({"port": port, "pids": pids}))


def supervise(running: list[Service], started: Callable[[], None]) -> int:
    """Until JupyterLab ends or a signal comes; starts a dead pool or node again after a second."""
    while True:
        for service in running:
            code = service.ended()
            if code is None:
                continue
            if service.name == "JupyterLab":
                say(f"JupyterLab ended with status {code}.")
                return 0 if code == 0 else 1
            if service.restarts and time.monotonic() - service.started_at > 1.0:
                say(f"{service.name} ended with status {code} (log: {service.log}); starting it again.")
                service.start()
                started()
        time.sleep(0.3)


def main(argv: list[str] | None = None) -> int:
    """Starts all, opens the page, and stops all at Ctrl-C or SIGTERM; the exit status."""
    options = parse_arguments(argv)

    def interrupted(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    # A shell that starts a job in the background makes it ignore SIGINT; this command always listens.
    signal.signal(signal.SIGINT, interrupted)
    port = free_port(options.port)
    token = options.token or secrets.token_hex(24)
    try:
        stack = services(options, port, token)
    except DirectoryUnusableError as error:
        raise SystemExit(str(error)) from None
    status = 0
    try:
        for service, seconds in zip(stack, (30, 60, 60), strict=True):
            say(f"Starting {service.name} …")
            service.start()
            service.wait_ready(seconds)
        record(options.home, port, stack)
        url = f"http://127.0.0.1:{port}/lab/tree/{options.notebook}?token={token}"
        say(f"ready {url}")
        say("Ctrl-C ends JupyterLab, the node and the pool.")
        if not options.no_browser:
            open_browser(url, options.home)
        status = supervise(stack, lambda: record(options.home, port, stack))
    except KeyboardInterrupt:
        say("\nStopping …")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for service in reversed(stack):
            service.stop(15)
        say("Everything that was started has ended.")
    return status
