"""The projects that a person may choose from, with what each deserves, holds and has left."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.client.projects import ProjectList, ProjectStatus


@dataclass(frozen=True, slots=True)
class ProjectChoice:
    """A project that may be asked for; quantities in milli-GPU.

    Attributes:
        deserved: what it always gets of the present pool.
        limit: what it never exceeds, the limits above it included; None: no limit.
        held: what its leases hold.
        free: what is left of the limit that is reached first; None: no limit. Whether the pool has as much is not asked.
    """

    path: str
    deserved: int
    limit: int | None
    held: int
    free: int | None


def choices(listed: ProjectList) -> list[ProjectChoice]:
    """What is open to the user whom the list is for, in its order."""
    by_path = {project.settings.path: project for project in listed.projects}
    found = []
    for project in listed.projects:
        if not project.open:
            continue
        limited = [
            (limit, above.allocated_milli)
            for above in _lineage(by_path, project.settings.path)
            if (limit := above.settings.limit_milli) is not None
        ]
        found.append(
            ProjectChoice(
                path=project.settings.path,
                deserved=project.real_deserved_milli,
                limit=min((limit for limit, _ in limited), default=None),
                held=project.allocated_milli,
                free=min((max(0, limit - held) for limit, held in limited), default=None),
            )
        )
    return found


def _lineage(by_path: dict[str, ProjectStatus], path: str) -> list[ProjectStatus]:
    """The project and all above it."""
    names = path.split("/")
    paths = ["/".join(names[: length + 1]) for length in range(len(names))]
    return [by_path[name] for name in paths if name in by_path]
