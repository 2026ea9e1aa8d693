"""``api/administration``: nodes and projects, for the dashboard; what changes them is for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.asked import BadRequestError
from jupyter_gpupool.server.handlers.base import GpupoolHandler, RefusalError
from jupyter_gpupool.server.handlers.said import said_view
from jupyter_gpupool.server.rest.dashboard import Administration, Node, Project

if TYPE_CHECKING:
    from gpupool.client import types
    from gpupool.client.projects import ProjectStatus

    from jupyter_gpupool.server.extension import GpuPoolExtension
    from jupyter_gpupool.server.pool.port import Pool

_MOST_MILLI: Final = 10**9
_MOST_WEIGHT: Final = 1_000_000
_LONGEST_REASON: Final = 200


async def may_administer(extension: GpuPoolExtension) -> bool:
    """Whether the person behind this server is an administrator of the pool, by its own word."""
    await extension.caller()
    return extension.is_admin


class _AdministrationHandler(GpupoolHandler):
    async def only_administrators(self) -> Pool:
        """The pool, for who may change it; the pool itself asks for the role of this server's token besides."""
        if not await may_administer(self.extension):
            user = await self.extension.pool_user()
            raise RefusalError("forbidden", f"{user} is no administrator of the GPU pool.")
        return (await self.extension.sessions()).pool


class AdministrationHandler(_AdministrationHandler):
    """``GET api/administration``: nodes and projects as this user may see them, and whether she may change them."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        from gpupool.client.admin import AdminClient
        from gpupool.client.projects import ProjectsClient

        pool = (await self.extension.sessions()).pool
        admin = await may_administer(self.extension)
        nodes = await AdminClient(pool).nodes()
        projects = await ProjectsClient(pool).projects()
        answer: Administration = {
            "admin": admin,
            "nodes": [node_view(node) for node in nodes],
            "projects": [project_view(project, everything=admin) for project in projects.projects],
            "warnings": list(projects.warnings),
            "capacity_milli": projects.capacity_milli,
        }
        self.answer(answer)


class DrainHandler(_AdministrationHandler):
    """``POST api/administration/drain {node, drained, reason, evict}``: lets a node take no new leases, or take them again."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        from gpupool.client.admin import AdminClient

        body = self.asked()
        node, reason = _text(body, "node"), _text(body, "reason", "")
        if len(reason) > _LONGEST_REASON:
            raise BadRequestError(f"The reason has {len(reason)} characters, more than {_LONGEST_REASON}.")
        drained, evict = _switch(body, "drained", None), _switch(body, "evict", False)
        pool = await self.only_administrators()
        changed = await AdminClient(pool).drain(node, drained=drained, reason=reason, evict=evict)
        self.answer(node_view(changed))


class ProjectHandler(_AdministrationHandler):
    """``POST api/administration/project {path, deserved?, limit?, weight?}``: milli-GPU; null: nothing set. The rest stays."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        from gpupool.client.projects import ProjectsClient

        body = self.asked()
        path = _text(body, "path")
        changes: dict[str, int | None] = {}
        for name, field in (("deserved", "deserved_milli"), ("limit", "limit_milli")):
            if name in body:
                changes[field] = _milli(body, name)
        if "weight" in body:
            changes["weight"] = _whole(body, "weight", _MOST_WEIGHT)
        if not changes:
            raise BadRequestError("Nothing is to be changed: give deserved, limit or weight.")
        projects = ProjectsClient(await self.only_administrators())
        listed = (await projects.projects()).projects
        # Here projects are changed; a wrong path must not make one.
        if not any(project.settings.path == path for project in listed):
            raise BadRequestError(f"There is no project {path[:80]!r}.", "unknown-project")
        self.answer(project_view(await projects.change_project(path, changes), everything=True))


def node_view(node: types.Node) -> Node:
    return {
        "name": node.name,
        "connected": node.connected,
        "lost": node.lost,
        "silent_seconds": node.silent_seconds,
        "drained": node.drained,
        "drain_reason": node.drain_reason,
        "node_pool": node.node_pool,
        "sharing": node.sharing,
        "devices": node.devices,
        "leases": node.leases,
    }


def project_view(project: ProjectStatus, *, everything: bool) -> Project:
    settings = project.settings
    return {
        "path": settings.path,
        "deserved_milli": settings.deserved_milli,
        "limit_milli": settings.limit_milli,
        "weight": settings.weight,
        "priority": settings.priority,
        "allocated_milli": project.allocated_milli,
        "waiting_milli": project.waiting_milli,
        "fair_share_milli": project.fair_share_milli,
        "real_deserved_milli": project.real_deserved_milli,
        "alerts": list(map(said_view, project.alerts)) if everything else [],
    }


def _text(body: dict[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or (default is None and not value):
        raise BadRequestError(f"{name} must be a text, {str(value)[:40]!r} is not.")
    return value


def _switch(body: dict[str, Any], name: str, default: bool | None) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise BadRequestError(f"{name} must be true or false, {str(value)[:40]!r} is not.")
    return value


def _milli(body: dict[str, Any], name: str) -> int | None:
    return None if body[name] is None else _whole(body, name, _MOST_MILLI)


def _whole(body: dict[str, Any], name: str, most: int) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadRequestError(f"{name} must be a whole number within 0..{most}, {str(value)[:40]!r} is not.")
    return value
