"""What a request can name in this pool: the projects of a user, kinds of GPUs, nodes, labels, node pools.

For completion: whoever writes a request is offered what exists. Nothing here decides; the pool does, when it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from gpupool.client.errors import GpupoolError
from gpupool.client.projects import ProjectsClient, ProjectSettings
from gpupool.client.types import Device

#: Members of a project that admits everybody whom its parent admits.
EVERYBODY = "*"


async def choices(pool: Any, user: str | None) -> dict[str, Any]:
    """``{"projects", "names", "nodes", "labels": {name: [value]}, "node_pools"}``, each sorted.

    ``user`` None: whose projects is known to the pool alone, so all are offered.

    Raises:
        GpupoolError: the pool does not answer.
    """
    devices, projects = await asyncio.gather(pool.devices(), _projects(pool, user))
    return {"projects": projects, **of_devices(devices)}


def of_devices(devices: Iterable[Device]) -> dict[str, Any]:
    """What devices are called, where they are, and what is said of their nodes."""
    names, nodes, pools = set(), set(), set()
    labels: dict[str, set[str]] = {}
    for device in devices:
        names.add(device.name)
        nodes.add(device.node)
        pools.add(device.node_pool)
        for name, value in device.labels.items():
            labels.setdefault(name, set()).add(value)
    return {
        "names": sorted(names),
        "nodes": sorted(nodes),
        "labels": {name: sorted(values) for name, values in sorted(labels.items())},
        "node_pools": sorted(pools),
    }


def admitting(projects: Iterable[ProjectSettings], user: str | None) -> list[str]:
    """Paths of the projects that ``user`` may name, given in any order: those with projects below hold no leases."""
    admitted: dict[str, bool] = {}
    parents = set()
    for project in sorted(projects, key=lambda project: project.path):
        parent = project.path.rpartition("/")[0]
        parents.add(parent)
        above = admitted.get(parent, True)
        admitted[project.path] = (
            user is None or user in project.members or (EVERYBODY in project.members and above)
        )
    return sorted(path for path, may in admitted.items() if may and path not in parents)


async def _projects(pool: Any, user: str | None) -> list[str]:
    try:
        listed = await ProjectsClient(pool).projects()
    except GpupoolError:
        return []  # its devices may still be shown
    return admitting((project.settings for project in listed.projects), user)
