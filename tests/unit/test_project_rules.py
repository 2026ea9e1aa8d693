"""What administrators may do to projects, and which project a request belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.model import events
from gpupool.model.instructions import TellRefused
from gpupool.model.state import LeaseRecord, ProjectRecord, RequestRecord, State
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects.project_rules import NoProject, project_of
from gpupool.scheduler.fairshare import ProjectError
from gpupool.scheduler.model import PlacedShare

from tests.support.pool_world import counting_ids


@pytest.fixture
def machine() -> Machine:
    return Machine(State(), Timers(), counting_ids())


def make(machine: Machine, *records: ProjectRecord) -> None:
    for record in records:
        machine.handle(events.ProjectSet(1.0, record, "root"))


def remove(machine: Machine, path: str) -> None:
    machine.handle(events.ProjectRemoved(1.0, path, "root"))


def hold(machine: Machine, project: str) -> None:
    machine.state.leases["l1"] = LeaseRecord(
        "l1", "s1", "ann", "k1", "", "", 1, (PlacedShare("n/0", 500, 10),), "attached", 0.0, True, project=project
    )  # fmt: skip


def wait(machine: Machine, project: str) -> None:
    machine.state.requests["a1"] = RequestRecord(
        "a1", 1, "ann", "k2", 500, None, 1, "", "", "", 0.0, None, 0.0, False, project=project
    )


class TestChanges:
    def test_a_parent_cannot_hold_leases(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"))
        hold(machine, "research")
        with pytest.raises(ProjectError, match="research has 1 lease and 0 waiting requests"):
            make(machine, ProjectRecord("research/vision"))
        assert set(machine.state.projects) == {"research"}

    def test_nobody_may_wait_in_a_parent_either(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"))
        wait(machine, "research")
        with pytest.raises(ProjectError, match=r"research has 0 leases and 1 waiting request$"):
            make(machine, ProjectRecord("research/vision"))

    def test_who_is_no_member_any_more_does_not_wait_any_longer(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research", members=("ann", "bob")))
        wait(machine, "research")
        done = machine.handle(events.ProjectSet(1.0, ProjectRecord("research", members=("bob",)), "root"))
        (told,) = [item for item in done if isinstance(item, TellRefused)]
        assert (told.user, told.key, told.reason) == ("ann", "k2", "forbidden")
        assert not machine.state.requests

    def test_who_is_no_member_of_what_is_above_does_not_wait_any_longer(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"), ProjectRecord("research/vision"))
        wait(machine, "research/vision")
        make(machine, ProjectRecord("research", members=("bob",)))
        assert not machine.state.requests

    def test_who_may_be_in_a_group_goes_on_waiting(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research", members=("ann",)))
        wait(machine, "research")
        make(machine, ProjectRecord("research", members=("bob", "@vision")))
        assert set(machine.state.requests) == {"a1"}

    def test_another_project_that_shuts_users_out_concerns_nobody_here(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"), ProjectRecord("teaching"))
        wait(machine, "research")
        make(machine, ProjectRecord("teaching", members=("bob",)))
        assert set(machine.state.requests) == {"a1"}

    def test_a_project_with_leases_is_not_removed(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"))
        hold(machine, "research")
        with pytest.raises(ProjectError, match="research cannot be removed: research has 1 lease"):
            remove(machine, "research")
        machine.state.leases["l1"] = replace(machine.state.leases["l1"], state="ended")
        remove(machine, "research")
        assert not machine.state.projects

    def test_a_project_with_others_below_it_is_not_removed(self, machine: Machine) -> None:
        make(machine, ProjectRecord("research"), ProjectRecord("research/vision"))
        with pytest.raises(ProjectError, match="remove research/vision below it first"):
            remove(machine, "research")

    def test_default_goes_back_to_what_it_is_by_itself_though_it_holds_leases(self, machine: Machine) -> None:
        make(machine, ProjectRecord("default", 100))
        hold(machine, "default")
        remove(machine, "default")
        assert not machine.state.projects

    def test_children_do_not_deserve_more_than_their_parent(self, machine: Machine) -> None:
        make(machine, ProjectRecord("a", 4000), ProjectRecord("a/x", 3000))
        with pytest.raises(ProjectError, match=r"a deserves 4 GPUs, .* would deserve 5 GPUs together"):
            make(machine, ProjectRecord("a/y", 2000))
        make(machine, ProjectRecord("a/y", 1000))
        with pytest.raises(ProjectError, match=r"a deserves 3\.5 GPUs, .* would deserve 4 GPUs together"):
            make(machine, ProjectRecord("a", 3500))

    def test_a_level_that_nobody_made_keeps_the_promise_too(self, machine: Machine) -> None:
        make(machine, ProjectRecord("a", 1000))
        with pytest.raises(ProjectError, match="a deserves 1 GPU, "):
            make(machine, ProjectRecord("a/b/c", 2000))

    def test_more_than_the_pool_has_may_be_promised_at_the_top(self, machine: Machine) -> None:
        make(machine, ProjectRecord("a", 8_000_000))

    def test_removing_what_is_not_there_changes_nothing(self, machine: Machine) -> None:
        assert machine.handle(events.ProjectRemoved(1.0, "nowhere", "root")) == []


class TestProjectOf:
    @pytest.fixture
    def state(self, machine: Machine) -> State:
        make(
            machine,
            ProjectRecord("research/vision", members=("ann", "bob")),
            ProjectRecord("research/text", members=("bob",)),
            ProjectRecord("open"),
            ProjectRecord("lab", members=("carl",)),
            ProjectRecord("lab/one"),
            ProjectRecord("lab/two", members=("dora",)),
        )
        return machine.state

    def problem(self, state: State, user: str, wanted: str = "") -> NoProject:
        found = project_of(state, user, wanted)
        assert isinstance(found, NoProject)
        return found

    def test_who_is_named_by_one_project_is_in_it(self, state: State) -> None:
        assert project_of(state, "ann") == "research/vision"

    def test_who_is_named_by_none_is_in_default(self, state: State) -> None:
        assert project_of(state, "eve") == "default"

    def test_who_is_named_by_several_must_say_which(self, state: State) -> None:
        problem = self.problem(state, "bob")
        assert problem.reason == "unknown-project"
        assert "bob is a member of research/text, research/vision; say which one" in str(problem.said)
        assert project_of(state, "bob", "research/text") == "research/text"

    def test_a_session_goes_on_where_it_was(self, state: State) -> None:
        assert project_of(state, "bob", last="research/text") == "research/text"
        assert project_of(state, "eve", last="open") == "open"
        assert project_of(state, "ann", last="research/text") == "research/vision"  # not admitted any more
        assert project_of(state, "eve", last="gone") == "default"

    def test_a_child_for_everybody_is_for_all_whom_its_parent_admits(self, state: State) -> None:
        assert project_of(state, "carl") == "lab/one"
        assert self.problem(state, "eve", "lab/one").reason == "forbidden"
        assert project_of(state, "dora", "lab/two") == "lab/two"

    def test_a_wish_that_cannot_be_says_what_can(self, state: State) -> None:
        problem = self.problem(state, "ann", "research/nothing")
        assert problem.reason == "unknown-project"
        assert str(problem.said) == (
            "there is no project 'research/nothing'; open to ann: default, open, research/vision"
        )

    def test_a_parent_is_no_project_to_ask_in(self, state: State) -> None:
        problem = self.problem(state, "ann", "research")
        assert str(problem.said) == (
            "project research holds no leases itself; name one of those below it: research/text, research/vision"
        )

    def test_another_teams_project_is_forbidden(self, state: State) -> None:
        problem = self.problem(state, "ann", "research/text")
        assert problem.reason == "forbidden"
        assert str(problem.said).startswith("ann is not a member of project research/text")

    def test_a_closed_default_is_for_members_only(self, machine: Machine) -> None:
        make(machine, ProjectRecord("default", members=("ann",)))
        assert project_of(machine.state, "ann") == "default"
        assert self.problem(machine.state, "eve").reason == "forbidden"
