"""A real JupyterHub in front of a real pool and node: users' servers are started by the Hub, calls go through its proxy.

Needs the extra `hub` in the interpreter that runs the tests, and `configurable-http-proxy` (`GPUPOOL_HUB_PROXY`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from gpupool.embedded.loopback import free_port
from jupyter_client.blocking.client import BlockingKernelClient

from tests.support.certificates import make_certificates
from tests.support.pool_node import PoolAndNode
from tests.support.stack import wait_until

ROOT = Path(__file__).resolve().parents[2]
#: The pool believes the Hub for so long, seconds.
BELIEVED = 6.0

_CONFIGURATION = """
import json, os
s = json.loads(os.environ["HUB_TEST_SETTINGS"])
c = get_config()
c.JupyterHub.bind_url = f"http://127.0.0.1:{s['port']}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{s['hub_port']}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{s['proxy_port']}"
c.ConfigurableHTTPProxy.command = s["proxy"]
c.JupyterHub.db_url = "sqlite:///" + s["home"] + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = s["home"] + "/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"root"}
c.JupyterHub.load_groups = {"vision": {"users": ["ann"]}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = s["home"] + "/home/{username}"
c.Spawner.cmd = s["singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.environment = s["environment"]
# Every answered request through this proxy would count as activity, pages' polling too: servers report theirs.
c.JupyterHub.last_activity_interval = 0
# Reports that are no later than this many seconds are passed over; the culler here is faster than in life.
c.JupyterHub.activity_resolution = 1
c.JupyterHub.cleanup_servers = c.JupyterHub.cleanup_proxy = False
c.JupyterHub.services = [
    {"name": "tests", "api_token": s["token"]},
    {"name": "culler", "api_token": s["culler_token"]},
]
c.JupyterHub.load_roles = [
    {"name": "tests", "scopes": ["admin:users", "admin:servers", "tokens", "access:servers"], "services": ["tests"]},
    {"name": "culler", "services": ["culler"],
     "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"]},
]
"""


class HubStack:
    """`with HubStack() as hub:`; nothing that it started is left afterwards."""

    def __init__(self, *serve_arguments: str) -> None:
        self.port, self.pool_port = free_port(), free_port()
        self._hub_port, self._proxy_port = free_port(), free_port()
        self.token, self._culler_token = secrets.token_hex(16), secrets.token_hex(16)
        self.pool = PoolAndNode(
            "--listen", f"127.0.0.1:{self.pool_port}", "--hub-api-url", f"http://127.0.0.1:{self._hub_port}/hub/api",
            "--hub-believed", f"{BELIEVED:g}s", *serve_arguments, real_worker=True, gpus=1, scale=1.0,
        )  # fmt: skip
        self.home = self.pool.home
        certificates = make_certificates(self.home / "tls")
        self.ca_file = certificates.authority
        self.pool._serve_arguments += (
            "--tls-certificate", str(certificates.certificate), "--tls-key", str(certificates.key),
        )  # fmt: skip
        self.endpoint = f"tls:127.0.0.1:{self.pool_port}"
        self._hub: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.pool.__enter__()
        try:
            self._start_hub()
        except BaseException:
            print(self.log())
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if self._hub is not None:
            self._hub.wait()
        self.pool.__exit__(kind, error, trace)

    def _start_hub(self) -> None:
        configuration = self.home / "jupyterhub_config.py"
        configuration.write_text(_CONFIGURATION)
        # As an installed wheel puts it: the extension is on without a word of the user.
        enabled = self.home / "etc" / "jupyter_server_config.d"
        enabled.mkdir(parents=True)
        source = ROOT / "jupyter_gpupool" / "jupyter-config" / "jupyter_gpupool.json"
        (enabled / source.name).write_text(source.read_text())
        # Of the users' servers; they must not find the pool's own socket.
        servers = {
            "PYTHONPATH": self.pool.environment["PYTHONPATH"] + os.pathsep + str(ROOT),
            "JUPYTER_CONFIG_PATH": str(self.home / "etc"),
            "JUPYTERHUB_ACTIVITY_INTERVAL": "3",
            "GPUPOOL_NATIVE_DIR": self.pool.environment["GPUPOOL_NATIVE_DIR"],
            "GPUPOOL_ENDPOINT": self.endpoint,
            "GPUPOOL_CA_FILE": str(self.ca_file),
            "GPUPOOL_HUB_IDENTITY": "1",
        }
        settings = {
            "home": str(self.home),
            "port": self.port,
            "hub_port": self._hub_port,
            "proxy_port": self._proxy_port,
            "proxy": os.environ.get("GPUPOOL_HUB_PROXY", "configurable-http-proxy").split(),
            "token": self.token,
            "culler_token": self._culler_token,
            "environment": servers,
            "singleuser": [sys.executable, "-m", "jupyterhub.singleuser"],
        }
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GPUPOOL_", "JUPYTER", "JPY_"))
        } | {"HUB_TEST_SETTINGS": json.dumps(settings), "HUB_TEST_HOME": str(self.home)}
        with (self.home / "hub.log").open("ab") as log:
            self._hub = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "--config", str(configuration)],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.home,
            )  # fmt: skip
        wait_until(self._answers, 90, "JupyterHub", failed=lambda: self._hub_ended())

    def _hub_ended(self) -> bool:
        return self._hub is not None and self._hub.poll() is not None

    def _answers(self) -> bool:
        try:
            self.hub_api("GET", "users")
        except OSError:
            return False
        return True

    def processes(self) -> list[psutil.Process]:
        """Of the Hub: itself, proxy, culler, users' servers and kernels; servers outlive a Hub that was killed."""
        found = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if environment.get("HUB_TEST_HOME") == str(self.home) or environment.get("HOME", "").startswith(
                f"{self.home}/home/"
            ):
                found.append(process)
        return found

    @contextlib.contextmanager
    def culler(self, seconds: int) -> Iterator[None]:
        """The idle culler runs meanwhile: servers without activity for so long are stopped."""
        with (self.home / "culler.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={seconds}", "--cull-every=3",
                 f"--url=http://127.0.0.1:{self._hub_port}/hub/api"],
                env=os.environ | {"JUPYTERHUB_API_TOKEN": self._culler_token}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def kill_hub(self) -> None:
        """Only the Hub; proxy and servers go on."""
        assert self._hub is not None
        self._hub.send_signal(signal.SIGKILL)
        self._hub.wait()

    def log(self) -> str:
        path = self.home / "hub.log"
        return path.read_text(errors="replace")[-6000:] if path.exists() else ""

    # -- the Hub's API, as a service that may do everything

    def hub_api(self, method: str, path: str, body: object = None) -> Any:
        return request(f"http://127.0.0.1:{self._hub_port}/hub/api/{path}", self.token, method, body)

    def users(self, *names: str) -> list[User]:
        """Makes users, if they are new, and has the Hub start their servers, side by side."""
        for name in names:
            self._start_server(name)
        for name in names:
            wait_until(lambda name=name: self.runs(name), 180, f"the server of {name}")  # type: ignore[misc]
        return [User(self, name, self.hub_api("POST", f"users/{name}/tokens", {})["token"]) for name in names]

    def _start_server(self, name: str) -> None:
        try:
            self.hub_api("POST", f"users/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        if not self.runs(name):
            self.hub_api("POST", f"users/{name}/server")

    def runs(self, name: str) -> bool:
        """Whether the server of this user is ready."""
        server = self.hub_api("GET", f"users/{name}")["servers"].get("")
        return bool(server and server["ready"])


class User:
    """A user with a running server. `token`: one that a page of theirs has."""

    def __init__(self, hub: HubStack, name: str, token: str) -> None:
        self.hub, self.name, self.token = hub, name, token

    def api(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """A request to the server, through the Hub's proxy."""
        url = f"http://127.0.0.1:{self.hub.port}/user/{self.name}/{path}"
        return request(url, token or self.token, method, body)

    def gpupool(self, method: str, path: str, body: object = None) -> Any:
        return self.api(method, f"gpupool/api/{path}", body)

    def notebook(self, name: str) -> str:
        """A notebook with a kernel; the kernel's id."""
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        return str(self.api("POST", "api/sessions", body)["kernel"]["id"])

    def attach(self, kernel_id: str, share: str, **more: object) -> dict[str, Any]:
        """The kernel when it is attached, or was refused."""
        self.gpupool("POST", f"kernels/{kernel_id}/attach", {"share": share, **more})
        wait_until(lambda: self.kernel(kernel_id)["state"] not in ("none", "queued"), 30, "the attach")
        return self.kernel(kernel_id)

    def kernel(self, kernel_id: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            kernel for kernel in self.gpupool("GET", "kernels")["kernels"] if kernel["kernel_id"] == kernel_id
        )
        return found

    def run(self, kernel_id: str, code: str, seconds: float = 60.0) -> str:
        """A cell; what it printed."""
        home = self.hub.home / "home" / self.name
        (connection,) = home.rglob(f"kernel-{kernel_id}.json")
        client = BlockingKernelClient(connection_file=str(connection))
        client.load_connection_file()
        client.start_channels()
        try:
            _wait_ready(client)
            printed: list[str] = []

            def hear(message: dict[str, Any]) -> None:
                content = message["content"]
                printed.append(content.get("text") or "\n".join(content.get("traceback", [])))

            client.execute_interactive(code, timeout=seconds, output_hook=hear, allow_stdin=False)
            return "".join(printed)
        finally:
            client.stop_channels()

    def hub_token(self) -> str:
        """The token that the Hub gave to the server: any code of the user can read it."""
        return self.run(
            self.notebook("token.ipynb"), "import os; print(os.environ['JUPYTERHUB_API_TOKEN'])"
        ).strip()


def _wait_ready(client: BlockingKernelClient) -> None:
    """A client takes a kernel that is slow to start its heartbeat for dead."""
    for attempt in range(10):
        try:
            client.wait_for_ready(timeout=60)
        except RuntimeError:
            if attempt == 9:
                raise
            time.sleep(1)
        else:
            return


def request(url: str, token: str, method: str, body: object = None) -> Any:
    """One request; the decoded JSON. Raises HTTPError."""
    asked = urllib.request.Request(
        url,
        method=method,
        data=None if body is None and method == "GET" else json.dumps(body or {}).encode(),
        headers={"Authorization": f"token {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        text = reply.read()
    return json.loads(text) if text else None
