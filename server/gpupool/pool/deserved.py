"""What projects deserve, for reports and alerts: as they are now."""

from __future__ import annotations

from gpupool.pool.state import State
from gpupool.scheduler.fairshare.tree import Project, ProjectTree


def project_tree(state: State) -> ProjectTree:
    """The tree of the pool's projects."""
    return ProjectTree(
        Project(
            record.path,
            record.deserved,
            record.limit,
            record.weight,
            record.priority,
            record.min_run,
            record.members,
        )
        for record in state.projects.values()
    )


def deserved_milli(tree: ProjectTree, path: str, capacity: int) -> int:
    """Milli-GPU that `path` deserves of a pool of `capacity` milli-GPU; 0 when the project is gone."""
    return tree.deserved(path, capacity) if path in tree else 0
