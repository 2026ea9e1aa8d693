"""Projects and users' limits, as typed calls. Everybody may look; only administrators change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from gpupool.client.services import Services
from gpupool.proto import pool_pb2
from gpupool.proto.sentences import from_message
from gpupool.sentences import Sentence


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What an administrator says of a project; ``research/vision`` is a child of ``research``.

    Attributes:
        deserved_milli: milli-GPU that it always gets; None: what its siblings leave of their parent's.
        limit_milli: milli-GPU that it never exceeds; None: no limit.
        weight: its part of what nobody deserves, against its siblings of one priority.
        priority: siblings of higher priority are served first with what nobody deserves.
        min_run_seconds: a lease of it is not taken back before; None: its parent's, at last the pool's.
        members: users who may ask in its name, and groups of them (``@group``); ``*``: all whom its parent admits.
    """

    path: str
    deserved_milli: int | None = 0
    limit_milli: int | None = None
    weight: int = 1
    priority: int = 0
    min_run_seconds: float | None = None
    members: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """A project and where it stands; quantities in milli-GPU, sums over everything below it.

    Attributes:
        protected_milli: the part of what it holds that is not taken back for others.
        real_deserved_milli: what `ProjectSettings.deserved_milli` comes to of the present pool.
        decayed_gpu_seconds: what it used, halved once per half-life of the pool.
        alerts: what is nearly used up.
        open: the user whom the list is for may ask in its name.
    """

    settings: ProjectSettings
    allocated_milli: int
    protected_milli: int
    waiting_milli: int
    fair_share_milli: int
    real_deserved_milli: int
    decayed_gpu_seconds: float
    alerts: tuple[Sentence, ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class ProjectList:
    """The whole tree, parents before children, and what an administrator should know of it.

    `default_path`: what a request without a project counts against; empty: such a request is refused.
    """

    projects: tuple[ProjectStatus, ...]
    warnings: tuple[str, ...]
    capacity_milli: int
    default_path: str = ""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one user may have; ``*`` is for users without a limit of their own. None: no limit.

    Attributes:
        milli: sum of milli-GPU at a time.
        shares: number of device shares at a time.
        largest_milli: milli-GPU of one request.
        gpu_seconds: in `window_seconds`, counted from the first use.
    """

    user: str
    milli: int | None = None
    shares: int | None = None
    largest_milli: int | None = None
    gpu_seconds: int | None = None
    window_seconds: int = 86_400


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit and how much of it is used. `resets_in_seconds` None: nothing is, of the window.

    `alerts`: what is nearly used up. `configured`: it is of ``gpupool pool serve --quota``.
    """

    settings: LimitSettings
    held_milli: int
    held_shares: int
    used_gpu_seconds: float
    resets_in_seconds: float | None
    alerts: tuple[Sentence, ...] = ()
    configured: bool = False


_CHANGEABLE: Final = frozenset(field.name for field in fields(ProjectSettings)) - {"path"}
_CHANGEABLE_LIMITS: Final = frozenset(field.name for field in fields(LimitSettings)) - {"user"}


class ProjectsClient:
    """The service Projects of an open :class:`PoolClient`; errors are its."""

    def __init__(self, pool: Services) -> None:
        self._pool = pool

    async def projects(self, user: str = "") -> ProjectList:
        """`user`: whom it is for, where the caller is an administrator; others see it as themselves."""
        answer = await self._call("ListProjects", pool_pb2.ListRequest(user=user))
        return ProjectList(
            tuple(map(_project, answer.projects)),
            tuple(answer.warnings),
            answer.capacity_milli,
            answer.default_path,
        )

    async def set_project(self, settings: ProjectSettings) -> ProjectStatus:
        """Makes a project, or changes it to be exactly this."""
        run = settings.min_run_seconds
        message = pool_pb2.Project(
            path=settings.path,
            deserved_milli=_number(settings.deserved_milli),
            limit_milli=_number(settings.limit_milli),
            weight=settings.weight,
            priority=settings.priority,
            min_run_seconds=-1.0 if run is None else run,
            members=settings.members,
        )
        return _project(await self._call("SetProject", message))

    async def change_project(self, path: str, changes: Mapping[str, Any]) -> ProjectStatus:
        """Makes a project, or changes what is named of it; what others change of the rest meanwhile stays.

        Args:
            path: its path, such as ``research/vision``.
            changes: values by names of :class:`ProjectSettings`' fields.

        Raises:
            TypeError: one is not such a field.
        """
        message = pool_pb2.ProjectChange(path=path)
        for name, value in changes.items():
            if name not in _CHANGEABLE:
                raise TypeError(f"{name!r} of a project cannot be set")
            if name == "members":
                message.members.SetInParent()
                message.members.names.extend(value)
            else:
                setattr(message, name, -1 if value is None else value)
        return _project(await self._call("ChangeProject", message))

    async def remove_project(self, path: str) -> bool:
        """Whether it was there."""
        answer = await self._call("RemoveProject", pool_pb2.RemoveProjectRequest(path=path))
        return bool(answer.existed)

    async def limits(self) -> list[LimitStatus]:
        """All of them for administrators, their own for users."""
        answer = await self._call("ListLimits", pool_pb2.ListRequest())
        return [_limit(item) for item in answer.limits]

    async def set_limit(self, settings: LimitSettings) -> LimitStatus:
        """Limits a user to exactly this."""
        message = pool_pb2.Limit(
            user=settings.user,
            milli=_number(settings.milli),
            shares=_number(settings.shares),
            largest_milli=_number(settings.largest_milli),
            gpu_seconds=_number(settings.gpu_seconds),
            window_seconds=settings.window_seconds,
        )
        return _limit(await self._call("SetLimit", message))

    async def change_limit(self, user: str, changes: Mapping[str, int | None]) -> LimitStatus:
        """Limits a user, or changes what is named of the limit; what others change of the rest meanwhile stays.

        Args:
            user: their name; ``*``: all who have no limit of their own.
            changes: values by names of :class:`LimitSettings`' fields.

        Raises:
            TypeError: one is not such a field.
        """
        message = pool_pb2.LimitChange(user=user)
        for name, value in changes.items():
            if name not in _CHANGEABLE_LIMITS:
                raise TypeError(f"{name!r} of a limit cannot be set")
            setattr(message, name, _number(value))
        return _limit(await self._call("ChangeLimit", message))

    async def remove_limit(self, user: str) -> bool:
        """Whether there was one."""
        answer = await self._call("RemoveLimit", pool_pb2.RemoveLimitRequest(user=user))
        return bool(answer.existed)

    async def _call(self, name: str, message: Any) -> Any:
        return await self._pool.call("Projects", name, message)


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _quantity(value: int) -> int | None:
    return None if value < 0 else value


def _project(message: Any) -> ProjectStatus:
    return ProjectStatus(
        ProjectSettings(
            path=message.path,
            deserved_milli=_quantity(message.deserved_milli),
            limit_milli=_quantity(message.limit_milli),
            weight=message.weight,
            priority=message.priority,
            min_run_seconds=None if message.min_run_seconds < 0 else message.min_run_seconds,
            members=tuple(message.members),
        ),
        allocated_milli=message.allocated_milli,
        protected_milli=message.protected_milli,
        waiting_milli=message.waiting_milli,
        fair_share_milli=message.fair_share_milli,
        real_deserved_milli=message.real_deserved_milli,
        decayed_gpu_seconds=message.decayed_gpu_seconds,
        alerts=tuple(map(from_message, message.alerts)),
        open=message.open,
    )


def _limit(message: Any) -> LimitStatus:
    return LimitStatus(
        LimitSettings(
            user=message.user,
            milli=_quantity(message.milli),
            shares=_quantity(message.shares),
            largest_milli=_quantity(message.largest_milli),
            gpu_seconds=_quantity(message.gpu_seconds),
            window_seconds=message.window_seconds,
        ),
        held_milli=message.held_milli,
        held_shares=message.held_shares,
        used_gpu_seconds=message.used_gpu_seconds,
        resets_in_seconds=None if message.resets_in_seconds < 0 else message.resets_in_seconds,
        alerts=tuple(map(from_message, message.alerts)),
        configured=message.configured,
    )
