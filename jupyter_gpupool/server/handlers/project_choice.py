"""The projects that a person may choose from, with what each deserves, holds and has left."""

from __future__ import annotations

from gpupool.client.projects import ProjectList, ProjectStatus

from jupyter_gpupool.server.rest.pool import ProjectChoice


def choices(listed: ProjectList) -> list[ProjectChoice]:
    """What is open to the user whom the list is for, in its order.

    The limits above a project count as its own; whether the pool has what is left of them is not asked.
    """
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
