"""All of it together: a cluster with one machine, in a thread of its own, and what tests can do to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from tests.support.certificates import make_certificates
from tests.support.cluster.access import User
from tests.support.cluster.api import Api
from tests.support.cluster.controllers import Controllers
from tests.support.cluster.kinds import Kind, kind_of
from tests.support.cluster.machine import Machine
from tests.support.cluster.store import Store

_T = TypeVar("_T")
_POD = kind_of("v1", "Pod")


class Cluster:
    """A cluster. Everything happens in its own thread; methods may be called from any other.

    Attributes:
        kubeconfig: of its administrator.
        address: of its API.
    """

    def __init__(
        self,
        gpus: tuple[str, ...] = ("6", "7"),
        claimable: tuple[str, ...] = (),
        taints: tuple[dict[str, str], ...] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpk-"))
        self.folder.chmod(0o755)
        self._certificates = make_certificates(self.folder / "certificates")
        self.store = Store()
        self.api = Api(self.store)
        self.machine = Machine(
            self.store, "machine-1", self.folder, {"nvidia.com/gpu": list(gpus)}, self._token_folder
        )
        self._controllers = Controllers(self.store)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self.do(lambda: self.machine.join({"accelerator": "test"}, list(taints), list(claimable)))
        self._wait(self._serve())
        self._worker = asyncio.run_coroutine_threadsafe(self._work(), self._loop)
        self.api.logs = lambda namespace, pod: self.machine.log(namespace, pod).read_text()
        self.kubeconfig = self._kubeconfig("admin", User("admin", admin=True))
        self.namespace("default")

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def close(self) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what tests do

    def do(self, act: Callable[[], _T]) -> _T:
        """Does it in the cluster's thread."""

        async def acts() -> _T:
            return act()

        return self._wait(acts())

    def namespace(self, name: str, security: str = "restricted") -> None:
        labels = {"pod-security.kubernetes.io/enforce": security}
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def put(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """As its administrator, past all rules but the schema."""
        return self.do(lambda: self.store.put(kind_of(value["apiVersion"], value["kind"]), value))

    def objects(self, kind: str, namespace: str = "", api: str = "v1") -> list[dict[str, Any]]:
        return self.do(lambda: self.store.of(api, kind, namespace))

    def pods(self, namespace: str = "") -> list[dict[str, Any]]:
        return self.objects("Pod", namespace)

    def remove(self, kind: Kind, namespace: str, name: str, **options: Any) -> None:
        self.do(lambda: self.api.delete(kind, self.store.get(kind, namespace, name), options))

    def evict(self, namespace: str, name: str) -> None:
        self.do(lambda: self.api.evict(namespace, name))

    def kill(self, namespace: str, name: str) -> None:
        self.do(lambda: self.machine.kill(self.store.get(_POD, namespace, name)))

    def output(self, namespace: str, name: str) -> str:
        return self.machine.log(namespace, name).read_text()

    def run_in(self, namespace: str, pod: str, command: Sequence[str]) -> str:
        """As `kubectl exec`: what it says."""
        found = self.do(lambda: self.store.get(_POD, namespace, pod))
        done = subprocess.run(
            self.machine.entering(found, command), capture_output=True, text=True, timeout=300, check=False,
            env=self.machine.environment(found),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def break_watches(self) -> None:
        self.do(lambda: [task.cancel() for task in self.api.watches])

    def stop_serving(self) -> None:
        """The API is down; pods live on."""
        assert self._runner is not None
        self._wait(self._runner.cleanup())

    def serve_again(self) -> None:
        self._wait(self._serve())

    def renew_token(self) -> None:
        """The administrator's token ends, and the kubeconfig has another."""
        tokens = self.api.tokens
        self.do(lambda: [tokens.pop(token) for token, user in list(tokens.items()) if user.admin])
        self._kubeconfig("admin", User("admin", admin=True))

    def user(self, name: str) -> Path:
        """The kubeconfig of a user, who may do what RBAC says."""
        return self._kubeconfig(name.replace(":", "-"), User(name))

    # ---- within

    def _wait(self, what: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(300)

    async def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificates.certificate, self._certificates.key)
        self._runner = web.AppRunner(self.api.application(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _work(self) -> None:
        while True:
            try:
                if not self._controllers.step():
                    await asyncio.sleep(0.02)
                self.machine.step()
            except Exception:
                traceback.print_exc()  # a controller is restarted
                await asyncio.sleep(0.2)
            await asyncio.sleep(0)

    async def _close(self) -> None:
        self._worker.cancel()
        await self.machine.close()
        if self._runner is not None:
            await self._runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _token(self, user: User) -> str:
        token = secrets.token_hex(16)
        self.api.tokens[token] = user
        return token

    def _token_folder(self, namespace: str, account: str) -> Path:
        """What a pod finds of its service account; the folder's name is the port of the API."""
        folder = self.folder / "tokens" / namespace / account / str(self._port)
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "token").write_text(self._token(User(f"system:serviceaccount:{namespace}:{account}")))
            (folder / "namespace").write_text(namespace)
            (folder / "ca.crt").write_bytes(self._certificates.authority.read_bytes())
        return folder

    def _kubeconfig(self, name: str, user: User) -> Path:
        authority = base64.b64encode(self._certificates.authority.read_bytes()).decode()
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "test",
                    "clusters": [
                        {"name": "test", "cluster": {"server": self.address, "certificate-authority-data": authority}}
                    ],
                    "users": [{"name": "test", "user": {"token": self._token(user)}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
                }
            )
        )  # fmt: skip
        return file


@contextlib.contextmanager
def cluster(**more: Any) -> Iterator[Cluster]:
    """A cluster of a test's own."""
    made = Cluster(**more)
    try:
        yield made
    finally:
        made.close()
