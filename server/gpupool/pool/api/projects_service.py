"""The `Projects` service: projects and users' limits. Everybody may look, administrators change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import grpc
import grpc.aio

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.model.state import LimitRecord, ProjectRecord
from gpupool.pool.access import validate
from gpupool.pool.access.auth import current_identity, refuse
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.projects import accounts, project_view
from gpupool.pool.projects.project_rules import record_of
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.proto.sentences import to_message
from gpupool.scheduler.fairshare import ProjectError
from gpupool.scheduler.fairshare.tree import EVERYBODY, GROUP, MAXIMUM_MILLI
from gpupool.shares import WHOLE_DEVICE_MILLI
from gpupool.text import printable

_MAX_MEMBERS = 10_000
_MAX_SHARES = 1_000_000
_MAX_GPU_SECONDS = 10**12
_MAX_WINDOW_SECONDS = 366 * 86_400
_MAX_PATH = 600


class ProjectsService(pool_pb2_grpc.ProjectsServicer):
    """Who may call what is in `auth.ALLOWED_ROLES`."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool

    async def ListProjects(self, request: pb.ListRequest, context: Any) -> pb.ProjectList:
        identity = current_identity()
        viewer = identity.viewer
        user = request.user[:_MAX_PATH] if viewer is None else viewer
        # The groups of others are known while they call, and to nobody else.
        groups = identity.groups_of(user)
        now = self._pool.clock.now()
        answer = project_view.project_list(self._pool.state, self._pool.timers, now, user, groups)
        own = {EVERYBODY, identity.name, *(GROUP + group for group in identity.groups)}
        for project in answer.projects:
            if viewer is not None:
                # Who works on what is not everybody's business.
                project.members[:] = [name for name in project.members if name in own]
            if viewer is None or project.members:
                project.alerts.extend(map(to_message, self._pool.alerts.of("project", project.path)))
        return answer

    async def SetProject(self, request: pb.Project, context: Any) -> pb.Project:
        record = ProjectRecord(
            path=request.path,
            deserved=_quantity(request.deserved_milli),
            limit=_quantity(request.limit_milli),
            weight=request.weight,
            priority=request.priority,
            min_run=None if request.min_run_seconds < 0 else request.min_run_seconds,
            members=tuple(dict.fromkeys(request.members)),
        )
        return await self._set_project(record, context)

    async def ChangeProject(self, request: pb.ProjectChange, context: Any) -> pb.Project:
        # From here to the end of the step nothing else happens, so no change of another is undone.
        known = record_of(self._pool.state, request.path)
        return await self._set_project(replace(known, **_changes(request, _PROJECT_FIELDS)), context)

    async def _set_project(self, record: ProjectRecord, context: Any) -> pb.Project:
        problem = _problem_with_members(record.members)
        if problem or len(record.path) > _MAX_PATH:
            text = (
                problem or f"the path of a project has {len(record.path)} characters, more than {_MAX_PATH}"
            )
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        now = self._pool.clock.now()
        await self._apply(events.ProjectSet(now, record, current_identity().name), context)
        return project_view.project(self._pool.state, self._pool.timers, now, record.path)

    async def RemoveProject(self, request: pb.RemoveProjectRequest, context: Any) -> pb.Removed:
        existed = request.path in self._pool.state.projects
        now = self._pool.clock.now()
        await self._apply(events.ProjectRemoved(now, request.path, current_identity().name), context)
        return pb.Removed(existed=existed)

    async def ListLimits(self, request: pb.ListRequest, context: Any) -> pb.LimitList:
        state, now = self._pool.state, self._pool.clock.now()
        configured = self._pool.machine.quotas
        seen = project_view.limits_seen_by(state, configured, current_identity().viewer)
        limits = [project_view.limit(state, record, now, configured=is_option) for record, is_option in seen]
        for limit in limits:
            limit.alerts.extend(map(to_message, self._pool.alerts.of("user", limit.user)))
        return pb.LimitList(limits=limits)

    async def SetLimit(self, request: pb.Limit, context: Any) -> pb.Limit:
        record = LimitRecord(
            user=request.user,
            milli=_quantity(request.milli),
            shares=_quantity(request.shares),
            largest_milli=_quantity(request.largest_milli),
            gpu_seconds=_quantity(request.gpu_seconds),
            window_seconds=request.window_seconds or LimitRecord("").window_seconds,
        )
        return await self._set_limit(record, context)

    async def ChangeLimit(self, request: pb.LimitChange, context: Any) -> pb.Limit:
        # What is not named stays as it counts now: a record of one's own stands above everybody's.
        known = project_view.effective_limit(self._pool.state, self._pool.machine.quotas, request.user)
        return await self._set_limit(replace(known, **_changes(request, _LIMIT_FIELDS)), context)

    async def _set_limit(self, record: LimitRecord, context: Any) -> pb.Limit:
        problem = _problem_with_limit(record)
        if problem:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", problem)
        now = self._pool.clock.now()
        await self._apply(events.LimitSet(now, record, current_identity().name), context)
        return project_view.limit(self._pool.state, record, now)

    async def RemoveLimit(self, request: pb.RemoveLimitRequest, context: Any) -> pb.Removed:
        existed = request.user in self._pool.state.limits
        now = self._pool.clock.now()
        await self._apply(events.LimitRemoved(now, request.user, current_identity().name), context)
        return pb.Removed(existed=existed)

    async def _apply(self, event: events.Event, context: Any) -> None:
        try:
            self._pool.apply(event)
        except ProjectError as error:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "bad-request", str(error))
        except LedgerError as error:
            # Nothing happened, so the client may send the same again.
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", str(error))


def _quantity(value: int) -> int | None:
    return None if value < 0 else value


#: Fields of a change: what each is called in the record, and how it is read.
_PROJECT_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "deserved_milli": ("deserved", _quantity),
    "limit_milli": ("limit", _quantity),
    "weight": ("weight", int),
    "priority": ("priority", int),
    "min_run_seconds": ("min_run", lambda seconds: None if seconds < 0 else seconds),
    "members": ("members", lambda members: tuple(dict.fromkeys(members.names))),
}
_LIMIT_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "milli": ("milli", _quantity),
    "shares": ("shares", _quantity),
    "largest_milli": ("largest_milli", _quantity),
    "gpu_seconds": ("gpu_seconds", _quantity),
    "window_seconds": ("window_seconds", lambda seconds: seconds or LimitRecord("").window_seconds),
}


def _changes(
    change: pb.ProjectChange | pb.LimitChange, fields: Mapping[str, tuple[str, Callable[[Any], object]]]
) -> dict[str, Any]:
    """What a change names, by the names of the record's fields: all else stays."""
    named: Any = change
    return {to: read(getattr(named, field)) for field, (to, read) in fields.items() if named.HasField(field)}


def _problem_with_members(members: tuple[str, ...]) -> str:
    if len(members) > _MAX_MEMBERS:
        return f"a project has {len(members)} members, more than {_MAX_MEMBERS}; write * for everybody"
    for name in members:
        if name != EVERYBODY and not validate.is_user(name) and not _is_group_member(name):
            return (
                f"{printable(name[:40])!r} is neither a user nor a @group (1..128 characters, no spaces); "
                "* is for everybody"
            )
    return ""


def _is_group_member(name: str) -> bool:
    return name.startswith(GROUP) and validate.is_group(name[len(GROUP) :])


def _problem_with_limit(record: LimitRecord) -> str:
    if record.user != accounts.EVERYBODY and not validate.is_user(record.user):
        return f"{printable(record.user[:40])!r} is not a user name (1..128 characters, no spaces); * is for all others"
    bounds = (
        ("milli", record.milli, MAXIMUM_MILLI),
        ("shares", record.shares, _MAX_SHARES),
        ("largest_milli", record.largest_milli, WHOLE_DEVICE_MILLI * _MAX_SHARES),
        ("gpu_seconds", record.gpu_seconds, _MAX_GPU_SECONDS),
    )
    for name, value, most in bounds:
        if value is not None and value > most:
            return f"{name} {value} of {record.user} is more than {most}; -1 is for no limit"
    if not 1 <= record.window_seconds <= _MAX_WINDOW_SECONDS:
        return (
            f"window_seconds {record.window_seconds} of {record.user} is not within 1..{_MAX_WINDOW_SECONDS}"
        )
    return ""
