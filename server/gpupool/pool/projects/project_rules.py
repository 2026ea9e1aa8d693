"""Projects as administrators set them, and which one a request belongs to.

A change is refused when it would leave leases or asks in a project that cannot hold any, or promise more below a
project than it deserves itself. More than the pool has may be promised: pools grow and shrink (`ProjectTree.warnings`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpupool.model import events
from gpupool.model.instructions import TellRefused
from gpupool.model.state import DEFAULT_PROJECT, ProjectRecord, State
from gpupool.pool.model import messages
from gpupool.pool.model.step import Step
from gpupool.scheduler.fairshare.tree import GROUP, Project, ProjectError, ProjectTree, gpus
from gpupool.sentences import NOTHING, Sentence, clauses, param, say


@dataclass(frozen=True, slots=True)
class NoProject:
    """Why a request belongs to no project. `reason`: ``unknown-project`` or ``forbidden``."""

    reason: str
    said: Sentence


def project_tree(state: State) -> ProjectTree:
    """The tree of the projects that administrators have made."""
    return _tree(tuple(state.projects.values()))


@lru_cache(maxsize=8)
def _tree(records: tuple[ProjectRecord, ...]) -> ProjectTree:
    return ProjectTree(as_project(record) for record in records)


def as_project(record: ProjectRecord) -> Project:
    """A project as the rules of fair share read it."""
    return Project(
        record.path,
        record.deserved,
        record.limit,
        record.weight,
        record.priority,
        record.min_run,
        record.members,
    )


def record_of(state: State, path: str) -> ProjectRecord:
    """A project as it is now, also one that nobody has made: ``default``, or a parent of others; else as a new one."""
    if (record := state.projects.get(path)) is not None:
        return record
    tree = project_tree(state)
    if path not in tree:
        return ProjectRecord(path)
    own = tree[path]
    return ProjectRecord(
        own.path, own.deserved, own.limit, own.weight, own.priority, own.min_run, tuple(own.members)
    )


def project_set(step: Step, event: events.ProjectSet) -> None:
    """Makes or changes a project.

    Raises:
        ProjectError: it cannot be so; nothing was changed.
    """
    state, record = step.state, event.project
    others = [as_project(other) for other in state.projects.values() if other.path != record.path]
    tree = ProjectTree([*others, as_project(record)])
    for path in tree.ancestors(record.path)[1:]:
        _nothing_in(state, path, f"{record.path} cannot be below {path}, which would hold no leases any more")
    for path in tree.ancestors(record.path):
        _promises_kept(tree, path)
    before = state.projects.get(record.path)
    state.projects[record.path] = record
    step.reschedule = True
    said = say(
        "project.made" if before is None else "project.changed",
        by=param.user(event.by),
        project=param.project(record.path),
        what=param.text(_in_words(record)),
        members=[param.user(name) for name in record.members] or [param.text("none")],
    )
    step.journal(
        "project", said,
        data={"by": event.by, "path": record.path, "now": _figures(record),
              **({"before": _figures(before)} if before is not None else {})},
    )  # fmt: skip
    _refuse_those_shut_out(step, tree, record.path)


def _refuse_those_shut_out(step: Step, tree: ProjectTree, path: str) -> None:
    """Refuses requests of users whom a project, or one below it, admits no more. Leases that lie stay.

    Who is in a group is known only while they call: where a group is admitted, everybody goes on waiting.
    """
    below = {leaf for leaf in tree.leaves if path in tree.ancestors(leaf)}
    for request in [request for request in step.state.requests.values() if request.project in below]:
        members = (name for above in tree.ancestors(request.project) for name in tree[above].members)
        groups = [name.removeprefix(GROUP) for name in members if name.startswith(GROUP)]
        if tree.admits(request.project, request.user, groups):
            continue
        whose, where = param.user(request.user), param.project(request.project)
        said = say("project.not-member", user=whose, project=where)
        del step.state.requests[request.id]
        refused = TellRefused(request.user, request.key, "forbidden", said)
        step.do(refused)
        messages.journal_refusal(step, refused, request.session_id)


def project_removed(step: Step, event: events.ProjectRemoved) -> None:
    """Forgets a project; one that is not there is gone already. ``default`` goes back to what it is by itself.

    Raises:
        ProjectError: leases, asks or other projects are in it; nothing was changed.
    """
    state, path = step.state, event.path
    record = state.projects.get(path)
    if record is None:
        return
    below = sorted(name for name in state.projects if name.startswith(path + "/"))
    if below:
        raise ProjectError(f"{path} cannot be removed: remove {', '.join(below[:5])} below it first")
    if path != DEFAULT_PROJECT:
        _nothing_in(state, path, f"{path} cannot be removed")
    del state.projects[path]
    step.reschedule = True
    step.journal(
        "project", say("project.removed", by=param.user(event.by), project=param.project(path)),
        data={"by": event.by, "path": path, "before": _figures(record)},
    )  # fmt: skip


def project_of(
    state: State, user: str, wanted: str = "", last: str = "", groups: tuple[str, ...] = ()
) -> str | NoProject:
    """The project that a request of `user`, who is in `groups`, counts against.

    Without a wish it is the only project whose members name the user or a group of theirs, else ``default``. Who is
    named by several must say which: charging either without a word would surprise somebody.

    Args:
        state: the pool as it is.
        user: who asks.
        wanted: what the request says; empty: nothing.
        last: of a request for a session that was here before: where it was, if that is still possible.
        groups: groups of the user, as the Hub says.
    """
    tree = project_tree(state)
    if wanted:
        return _wanted(tree, user, groups, wanted)
    if last in tree and tree.leaf(last) == last and tree.admits(last, user, groups):
        return last
    named = tree.named_projects_of(user, groups)
    if len(named) == 1:
        return named[0]
    if named:
        said = say(
            "project.several",
            user=param.user(user),
            projects=_several(named),
            example=param.project(named[0]),
        )
        return NoProject("unknown-project", said)
    if tree.admits(DEFAULT_PROJECT, user, groups):
        return DEFAULT_PROJECT
    said = say("project.none", user=param.user(user), project=param.project(DEFAULT_PROJECT))
    return NoProject("forbidden", clauses(said, _open_to(tree, user, groups)))


def default_project_of(state: State, user: str, groups: tuple[str, ...] = ()) -> str:
    """The project of a request of `user` that names none; empty: such a request is refused."""
    found = project_of(state, user, groups=groups)
    return found if isinstance(found, str) else ""


def _wanted(tree: ProjectTree, user: str, groups: tuple[str, ...], wanted: str) -> str | NoProject:
    if wanted not in tree:
        said = say("project.unknown", name=param.text(repr(wanted[:80])))
        return NoProject("unknown-project", clauses(said, _open_to(tree, user, groups)))
    if tree.children(wanted):
        below = [path for path in tree.leaves if path.startswith(wanted + "/")]
        said = say("project.inner", project=param.project(wanted), below=_several(below))
        return NoProject("unknown-project", said)
    if not tree.admits(wanted, user, groups):
        said = say("project.not-member", user=param.user(user), project=param.project(wanted))
        return NoProject("forbidden", clauses(said, _open_to(tree, user, groups)))
    return wanted


def _open_to(tree: ProjectTree, user: str, groups: tuple[str, ...]) -> Sentence:
    found = tree.projects_of(user, groups)
    return say("project.open", user=param.user(user), projects=_several(found)) if found else NOTHING


def _several(paths: Iterable[str]) -> Sentence:
    names = list(paths)
    listed = [param.project(name) for name in names[:8]]
    if len(names) > 8:
        return say("listed.more", of=listed, count=param.count(len(names) - 8))
    return say("listed", of=listed)


def _nothing_in(state: State, path: str, problem: str) -> None:
    leases = sum(1 for lease in state.index.holding.records() if lease.project == path)
    requests = sum(1 for request in state.requests.values() if request.project == path)
    if leases or requests:
        raise ProjectError(
            f"{problem}: {path} has {_count(leases, 'lease')} and {_count(requests, 'waiting request')}"
        )


def _promises_kept(tree: ProjectTree, path: str) -> None:
    deserved = tree[path].deserved
    promised = sum(tree[child].deserved or 0 for child in tree.children(path))
    if deserved is not None and promised > deserved:
        raise ProjectError(
            f"{path} deserves {gpus(deserved)}, and the projects right below it would deserve {gpus(promised)} together"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _figures(record: ProjectRecord) -> dict[str, object]:
    return {
        "deserved": record.deserved,
        "limit": record.limit,
        "weight": record.weight,
        "priority": record.priority,
        "min_run": record.min_run,
        "members": list(record.members),
    }


def _in_words(record: ProjectRecord) -> str:
    deserves = "what its siblings leave" if record.deserved is None else gpus(record.deserved)
    limit = "no limit" if record.limit is None else f"at most {gpus(record.limit)}"
    run = "" if record.min_run is None else f", not taken back before {record.min_run:g} s"
    return f"deserves {deserves}, {limit}, weight {record.weight}, priority {record.priority}{run}"
