"""What a person reads of the projects that are open to them."""

from __future__ import annotations

from gpupool.client.projects import ProjectList, ProjectSettings, ProjectStatus

from jupyter_gpupool.server.handlers.project_choice import choices
from jupyter_gpupool.server.rest.pool import ProjectChoice


def status(path: str, *, held: int = 0, limit: int | None = None, mine: bool = True) -> ProjectStatus:
    return ProjectStatus(
        ProjectSettings(path, limit_milli=limit),
        allocated_milli=held,
        protected_milli=0,
        waiting_milli=0,
        fair_share_milli=0,
        real_deserved_milli=500,
        decayed_gpu_seconds=0.0,
        open=mine,
    )


def chosen(*projects: ProjectStatus) -> list[ProjectChoice]:
    return choices(ProjectList(projects, (), 2000))


def test_only_open_projects_are_offered() -> None:
    found = chosen(status("default"), status("closed", mine=False))
    assert [choice["path"] for choice in found] == ["default"]


def test_a_project_without_a_limit_has_no_bound() -> None:
    assert chosen(status("default", held=300)) == [
        ProjectChoice(path="default", deserved=500, limit=None, held=300, free=None)
    ]


def test_the_limit_that_is_reached_first_counts_wherever_it_stands() -> None:
    (found,) = chosen(
        status("research", held=1900, limit=2000, mine=False),
        status("research/vision", held=400, limit=1000),
    )
    assert (found["limit"], found["held"], found["free"]) == (1000, 400, 100)


def test_what_is_over_its_limit_has_nothing_left() -> None:
    (found,) = chosen(status("a", held=1200, limit=1000))
    assert found["free"] == 0
