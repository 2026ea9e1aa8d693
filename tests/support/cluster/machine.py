"""One machine of the cluster: runs the pods that the scheduler gave it, as processes, and says how they are."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster.containers import (
    Box,
    base_environment,
    expand,
    isolation_is_missing,
    variables,
)
from tests.support.cluster.kinds import kind_of
from tests.support.cluster.store import StatusError, Store, timestamp

_POD = kind_of("v1", "Pod")
_LOOK_SECONDS = 0.02


class NotYetError(Exception):
    """A container cannot be made yet: a reason and a message, as the kubelet says it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Machine:
    """Named `name`. `devices`: by resource, those that a device plug-in has.

    Attributes:
        alive: false: it does nothing and says nothing, and what it runs goes on.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        folder: Path,
        devices: Mapping[str, list[str]],
        token: Callable[[str, str], Path],
    ) -> None:
        self._store, self.name, self._folder, self._devices, self._token = store, name, folder, devices, token
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._given: dict[str, list[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.alive = True

    def join(self, labels: Mapping[str, str], taints: list[dict[str, str]], claimable: list[str]) -> None:
        amounts = {resource: str(len(names)) for resource, names in self._devices.items()}
        self._store.put(
            kind_of("v1", "Node"),
            {
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": self.name, "labels": dict(labels), "annotations": {"claimable": ",".join(claimable)}},
                "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": "64", "memory": "256Gi", **amounts}},
            },
        )  # fmt: skip

    def step(self) -> None:
        """Begins with pods that are new here."""
        for pod in list(self._store.all(_POD)) if self.alive else ():
            uid = pod["metadata"]["uid"]
            mine = pod["spec"].get("nodeName") == self.name and uid not in self._pods
            if mine and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                self._pods[uid] = asyncio.create_task(self._run(pod), name=pod["metadata"]["name"])

    async def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                _signal(process, signal.SIGKILL)
                process.wait()
        for task in self._pods.values():
            task.cancel()
        await asyncio.gather(*self._pods.values(), return_exceptions=True)

    def kill(self, pod: Mapping[str, Any]) -> None:
        """The pod's process is killed, as by the system."""
        process = self._processes[pod["metadata"]["uid"]]
        os.kill(_inside(process), signal.SIGKILL)

    def entering(self, pod: Mapping[str, Any], command: Sequence[str]) -> list[str]:
        """A command that runs within the pod, as its user."""
        process, context = self._processes[pod["metadata"]["uid"]], pod["spec"].get("securityContext", {})
        if isolation_is_missing():
            return list(command)
        rights = [
            f"--reuid={context['runAsUser']}",
            f"--regid={context['runAsGroup']}",
            f"--groups={context['fsGroup']}",
        ]
        inside = [
            "setpriv",
            "--no-new-privs",
            "--bounding-set=-all",
            "--inh-caps=-all",
            *rights,
            "--",
            *command,
        ]
        return ["nsenter", f"--target={_inside(process)}", "--mount", "--pid", *inside]

    def environment(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """Of the pod's container."""
        namespace = pod["metadata"]["namespace"]
        (container,) = pod["spec"]["containers"]
        return variables(container, pod, lambda *what: self._value(namespace, *what), base_environment())

    def log(self, namespace: str, name: str) -> Path:
        return self._folder / "logs" / namespace / f"{name}.log"

    # ---- a pod

    async def _run(self, pod: Mapping[str, Any]) -> None:
        started = time.time()
        self._status(
            pod,
            lambda status: status.update(startTime=timestamp(started), podIP="127.0.0.1", hostIP="127.0.0.1"),
        )
        containers = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
        for container in containers:
            while True:
                over = await self._container(pod, container, started)
                if over is None:
                    return  # the pod has come to its end
                code, reason, message, began = over
                last = container is containers[-1]
                if (code != 0 and not last) or (last and pod["spec"]["restartPolicy"] == "Always"):
                    await asyncio.sleep(0.3)
                    continue
                break
        self._end(pod, containers[-1], code, reason, message, began)

    async def _container(
        self, pod: Mapping[str, Any], container: Mapping[str, Any], started: float
    ) -> tuple[int, str, str, float] | None:
        """Runs one to its end: code, reason, message, when it began; None: the pod is gone, or over for another reason."""
        while True:
            if self._now(pod) is None or self._now(pod)["metadata"].get("deletionTimestamp"):  # type: ignore[index]
                self._gone(pod)
                return None
            try:
                process = self._start(pod, container)
                break
            except NotYetError as error:
                waiting = {"reason": error.reason, "message": error.message}
                self._status(pod, lambda status: status.update(_waiting(container, waiting)))  # noqa: B023
                self._event(pod, error)
                await asyncio.sleep(0.2)
        began = time.time()
        self._processes[pod["metadata"]["uid"]] = process
        if container in pod["spec"]["containers"]:
            self._status(pod, lambda status: status.update(_running(container, began)))
        return await self._watch(pod, container, process, started, began)

    async def _watch(
        self, pod: Mapping[str, Any], container: Mapping[str, Any], process: subprocess.Popen[bytes], started: float, began: float
    ) -> tuple[int, str, str, float] | None:  # fmt: skip
        deadline = pod["spec"].get("activeDeadlineSeconds")
        kill_at: float | None = None
        reason = ""
        while process.poll() is None:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self.alive:
                continue
            now = self._now(pod)
            if kill_at is not None:
                if time.time() >= kill_at:
                    _signal(process, signal.SIGKILL)
            elif now is None or now["metadata"].get("deletionTimestamp"):
                grace = 0 if now is None else now["metadata"]["deletionGracePeriodSeconds"]
                kill_at = time.time() + grace
                _signal(process, signal.SIGTERM)
            elif deadline is not None and time.time() - started >= deadline:
                reason = "DeadlineExceeded"
                kill_at = time.time() + pod["spec"]["terminationGracePeriodSeconds"]
                _signal(process, signal.SIGTERM)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        message = self._last_words(pod, container) if code else ""
        now = self._now(pod)
        if now is None or now["metadata"].get("deletionTimestamp") or reason:
            self._end(pod, container, code, "Error" if code else "Completed", message, began, reason)
            self._gone(pod)
            return None
        return code, "Error" if code else "Completed", message, began

    def _end(
        self, pod: Mapping[str, Any], container: Mapping[str, Any], code: int, reason: str, message: str, began: float,
        pod_reason: str = "",
    ) -> None:  # fmt: skip
        terminated = {
            "exitCode": code, "reason": reason, "startedAt": timestamp(began), "finishedAt": timestamp(),
            **({"message": message} if message else {}),
        }  # fmt: skip

        def end(status: dict[str, Any]) -> None:
            status.update(_status_of(container, {"terminated": terminated}, ready=False))
            status["phase"] = "Failed" if code or pod_reason else "Succeeded"
            if pod_reason:
                status["reason"] = pod_reason
                status["message"] = "Pod was active on the node longer than the specified deadline"

        self._status(pod, end)
        self._given.pop(pod["metadata"]["uid"], None)

    def _gone(self, pod: Mapping[str, Any]) -> None:
        """The machine confirms: nothing of it runs. Its object goes if somebody had asked for that."""
        self._given.pop(pod["metadata"]["uid"], None)
        now = self._now(pod)
        if now is not None and now["metadata"].get("deletionTimestamp"):
            self._store.remove(_POD, now)

    # ---- a container

    def _start(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        volumes = self._volumes(pod)
        own = {**base_environment(), **self._of_devices(pod)}
        if "token" in volumes:
            own |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": volumes["token"].name}
        environment = variables(container, pod, lambda *what: self._value(namespace, *what), own)
        mounts = {one["mountPath"]: volumes[one["name"]] for one in container.get("volumeMounts", ())}
        if "token" in volumes:
            mounts["/var/run/secrets/kubernetes.io/serviceaccount"] = volumes["token"]
        context = {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        hosts = self._folder / f"hosts-{pod['metadata']['uid']}"
        hosts.write_text(self._hosts())
        command = [*container.get("command", ()), *container.get("args", ())]
        box = Box(
            [expand(word, environment) for word in command], environment, mounts, hosts, context.get("runAsUser"),
            context.get("runAsGroup"), context.get("fsGroup"), bool(context.get("readOnlyRootFilesystem")),
        )  # fmt: skip
        log = self.log(namespace, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            return subprocess.Popen(
                box.argv(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )

    def _of_devices(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """What a device plug-in, or a driver for claims, tells the container."""
        uid = pod["metadata"]["uid"]
        found: list[str] = []
        for container in pod["spec"]["containers"]:
            for resource, amount in container.get("resources", {}).get("limits", {}).items():
                if resource in self._devices and uid not in self._given:
                    taken = {one for names in self._given.values() for one in names}
                    free = [one for one in self._devices[resource] if one not in taken]
                    self._given[uid] = free[: int(amount)]
        found += self._given.get(uid, [])
        claims = kind_of("resource.k8s.io/v1", "ResourceClaim")
        for one in pod["status"].get("resourceClaimStatuses", ()):
            claim = self._store.get(claims, pod["metadata"]["namespace"], one["resourceClaimName"])
            found += [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]]
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(found)} if found else {}

    def _volumes(self, pod: Mapping[str, Any]) -> dict[str, Path]:
        namespace, root = pod["metadata"]["namespace"], self._folder / "pods" / pod["metadata"]["uid"]
        group = pod["spec"].get("securityContext", {}).get("fsGroup")
        found: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes", ()):
            folder = root / volume["name"]
            if "persistentVolumeClaim" in volume:
                folder = self._folder / "claims" / namespace / volume["persistentVolumeClaim"]["claimName"]
            fresh = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            mode = 0o644
            for kind, key, of in (
                ("secretKeyRef", "secret", "secretName"),
                ("configMapKeyRef", "configMap", "name"),
            ):
                if key in volume:
                    mode = volume[key].get("defaultMode", 0o644)
                    self._write(folder, self._data(namespace, kind, volume[key][of], volume[key].get("optional", False)),
                                volume[key].get("items"), mode, group)  # fmt: skip
            if fresh and os.geteuid() == 0:
                os.chown(folder, 0, group if group is not None else 0)
            if fresh:
                folder.chmod(0o2777 if "emptyDir" in volume else 0o2775)
            elif group is not None and "persistentVolumeClaim" in volume:
                policy = pod["spec"]["securityContext"].get("fsGroupChangePolicy", "Always")
                if policy == "Always":
                    self._open_to_group(folder)
            found[volume["name"]] = folder
        if pod["spec"].get("automountServiceAccountToken", True):
            account = pod["spec"].get("serviceAccountName", "default")
            kind = kind_of("v1", "ServiceAccount")
            known = self._store.find(kind, namespace, account) or {}
            if known.get("automountServiceAccountToken", True):
                found["token"] = self._token(namespace, account)
        return found

    @staticmethod
    def _open_to_group(folder: Path) -> None:
        """As kubelets do it at each mount of a volume, unless the pod says that its root tells enough."""
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o7777 | (0o2770 if path.is_dir() else 0o660))

    @staticmethod
    def _write(folder: Path, data: Mapping[str, bytes], items: Any, mode: int, group: int | None) -> None:
        named = {one["key"]: one["path"] for one in items} if items else {key: key for key in data}
        for key, path in named.items():
            file = folder / path
            if not file.exists() or file.read_bytes() != data[key]:
                file.unlink(missing_ok=True)
                file.write_bytes(data[key])
                file.chmod(mode if os.geteuid() == 0 else 0o600)
                if os.geteuid() == 0:
                    os.chown(file, 0, group if group is not None else 0)

    def _data(self, namespace: str, kind: str, name: str, optional: bool = False) -> dict[str, bytes]:
        of = kind_of("v1", "Secret" if kind == "secretKeyRef" else "ConfigMap")
        found = self._store.find(of, namespace, name)
        if found is None:
            if optional:
                return {}
            raise NotYetError("CreateContainerConfigError", f'{of.kind.lower()} "{name}" not found')
        if of.kind == "Secret":
            text = {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
            return text | {key: value.encode() for key, value in found.get("stringData", {}).items()}
        return {key: value.encode() for key, value in found.get("data", {}).items()}

    def _value(self, namespace: str, kind: str, name: str, key: str) -> str:
        data = self._data(namespace, kind, name)
        if key not in data:
            raise NotYetError(
                "CreateContainerConfigError", f"couldn't find key {key} in {kind} {namespace}/{name}"
            )
        return data[key].decode()

    def _hosts(self) -> str:
        lines = ["127.0.0.1 localhost"]
        for service in self._store.of("v1", "Service"):
            name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
            lines.append(
                f"127.0.0.1 {name}.{namespace}.svc.cluster.local {name}.{namespace}.svc {name}.{namespace} {name}"
            )
        return "\n".join(lines) + "\n"

    # ---- what is said

    def _now(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        now = self._store.find(_POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        return now if now is not None and now["metadata"]["uid"] == pod["metadata"]["uid"] else None

    def _status(self, pod: Mapping[str, Any], change: Callable[[dict[str, Any]], None]) -> None:
        try:
            self._store.change(_POD, pod, lambda new: change(new["status"]))
        except StatusError as error:
            if error.code != 404:
                raise

    def _event(self, pod: Mapping[str, Any], error: NotYetError) -> None:
        metadata, now = pod["metadata"], timestamp()
        self._store.put(
            kind_of("v1", "Event"),
            {
                "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "Failed", "message": f"Error: {error.message}",
                "metadata": {"name": f"{metadata['name']}.1", "namespace": metadata["namespace"]},
                "involvedObject": {
                    "kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
                },
                "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            },
        )  # fmt: skip

    def _last_words(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        log = self.log(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return log.read_bytes()[-2048:].decode(errors="replace")


def _inside(process: subprocess.Popen[bytes]) -> int:
    """The container's first process; `unshare` waits outside for its end, and whoever kills that alone leaves this one."""
    if isolation_is_missing():
        return process.pid
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    return process.pid


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.kill(_inside(process), number)
    except (ProcessLookupError, FileNotFoundError):
        return


def _status_of(container: Mapping[str, Any], state: Mapping[str, Any], *, ready: bool) -> dict[str, Any]:
    one = {
        "name": container["name"], "image": container["image"], "imageID": "", "ready": ready, "restartCount": 0, "state": state,
    }  # fmt: skip
    return {"containerStatuses": [one]}


def _running(container: Mapping[str, Any], began: float) -> dict[str, Any]:
    return {
        "phase": "Running",
        **_status_of(container, {"running": {"startedAt": timestamp(began)}}, ready=True),
    }


def _waiting(container: Mapping[str, Any], waiting: Mapping[str, str]) -> dict[str, Any]:
    return _status_of(container, {"waiting": waiting}, ready=False)
