"""A container as a process of this machine: its environment, its files, its rights.

Where root may make namespaces, a container has one with its volumes and a root file system that cannot be written, one of
processes, and the user and capabilities of its security context. Otherwise only its environment is as it should be. The image is
this machine.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True, slots=True)
class Box:
    """What a container is started with. `mounts`: folders by the path that the container sees."""

    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Mapping[str, Path] = field(default_factory=dict)
    hosts: Path | None = None
    user: int | None = None
    group: int | None = None
    volume_group: int | None = None
    read_only: bool = False

    def argv(self) -> list[str]:
        """The process that becomes the container."""
        if isolation_is_missing():
            return list(self.command)
        rights = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        if self.user is not None:
            groups = f"--groups={self.volume_group}" if self.volume_group is not None else "--clear-groups"
            rights += [f"--reuid={self.user}", f"--regid={self.group or self.user}", groups]
        inside = shlex.join([*rights, "--", *self.command])
        return [
            # It goes with this process, however that ends.
            "setpriv", "--pdeathsig=KILL", "--", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
            "/bin/sh", "-ec", "\n".join([*self._mounting(), f"exec {inside}"]),
        ]  # fmt: skip

    def _mounting(self) -> list[str]:
        lines: list[str] = []
        covered: set[str] = set()

        def cover(path: str) -> None:
            """A folder in which there may be new ones."""
            if path in covered:
                return
            covered.add(path)
            if path == "/etc":
                lines.extend(
                    ["mount -t tmpfs tmpfs /media", "cp -a /etc/. /media/", "mount --bind /media /etc"]
                )
            else:
                lines.append(f"mount -t tmpfs -o mode=0755 tmpfs {shlex.quote(path)}")

        lines += _interpreter_for_others(self.user)
        targets = {os.path.realpath(target): source for target, source in self.mounts.items()}
        for target in targets:
            if not Path(target).exists():
                cover(str(next(parent for parent in Path(target).parents if parent.exists())))
        hosts_at = len(lines)
        # Volumes lie in the folder for temporary files: what is mounted over it comes last.
        for target, source in sorted(
            targets.items(), key=lambda item: (str(item[1]).startswith(item[0]), len(item[0]))
        ):
            where, what = shlex.quote(target), shlex.quote(str(source))
            lines += [f"mkdir -p {where}", f"mount --bind {what} {where}"]
        if self.hosts is not None:
            lines.insert(hosts_at, f"mount --bind {shlex.quote(str(self.hosts))} /etc/hosts")
        if self.read_only:
            lines.append("mount -o remount,bind,ro /")
        return lines


@functools.cache
def isolation_is_missing() -> str:
    """Why containers see this machine's files and processes; empty: they do not."""
    if os.geteuid() != 0:
        return "needs root, for the namespaces of containers"
    command = [
        "setpriv",
        "--no-new-privs",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "mount",
        "-t",
        "tmpfs",
        "x",
        "/mnt",
    ]
    if (
        shutil.which("setpriv") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        return "needs unshare and setpriv, and the right to make namespaces"
    return ""


def expand(text: str, environment: Mapping[str, str]) -> str:
    """``$(NAME)`` in commands and variables, as Kubernetes does it; unknown ones stay."""
    return _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), text)


def base_environment() -> dict[str, str]:
    """What the image has: where this machine's programs and this tree are."""
    kept = {"PYTHONPATH", "LANG", "LD_LIBRARY_PATH"}
    found = {key: value for key, value in os.environ.items() if key in kept}
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin:/bin"])
    # The names of services are in /etc/hosts, for there is no server of names.
    return {**found, "PATH": path, "HOME": "/nonexistent", "GRPC_DNS_RESOLVER": "native"}


def _interpreter_for_others(user: int | None) -> list[str]:
    """Another user may not be allowed into the folder of this interpreter, as root's home: then it lies there alone."""
    prefix = Path(sys.base_prefix).resolve()
    closed = next(
        (one for one in reversed(prefix.parents) if one.exists() and not one.stat().st_mode & 0o005), None
    )
    if user in (None, 0) or closed is None:
        return []
    where, what = shlex.quote(str(closed)), shlex.quote(str(prefix))
    return [
        "mount -t tmpfs -o mode=0755 tmpfs /mnt",
        "mkdir /mnt/python",
        f"mount --bind {what} /mnt/python",
        f"mount -t tmpfs -o mode=0755 tmpfs {where}",
        f"mkdir -p {what}",
        f"mount --bind /mnt/python {what}",
    ]


def variables(
    container: Mapping[str, Any], pod: Mapping[str, Any], look: Any, own: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a container. `look`: finds the value of a key of a Secret or ConfigMap."""
    found = dict(own)
    fields = {
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
    }
    for one in container.get("env", ()):
        source = one.get("valueFrom", {})
        if "fieldRef" in source:
            found[one["name"]] = fields[source["fieldRef"]["fieldPath"]]
        elif source:
            (kind, reference), *_ = source.items()
            found[one["name"]] = look(kind, reference["name"], reference["key"])
        else:
            found[one["name"]] = expand(one.get("value", ""), found)
    return found
