"""The tree of projects: what each deserves, who may ask in its name, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from gpupool.names import MAXIMUM_DEPTH, MAXIMUM_PATH, NAME_RULE, is_name
from gpupool.scheduler.fairshare.apportion import Claim, apportion
from gpupool.shares import WHOLE_DEVICE_MILLI, format_milli

#: The project of who names none. It always exists and has no projects below it.
DEFAULT: Final = "default"
#: A member that begins so is a group of users.
GROUP: Final = "@"
#: Stands for everybody that the parent admits.
EVERYBODY: Final = "*"
MAXIMUM_WEIGHT: Final = 1_000_000
MAXIMUM_PRIORITY: Final = 1_000_000
MAXIMUM_MILLI: Final = 10**12


class ProjectError(ValueError):
    """A project cannot be so. ``str()`` is one sentence with the offending value."""


@dataclass(frozen=True, slots=True)
class Project:
    """A node of the tree; ``research/vision`` is a child of ``research``.

    Attributes:
        deserved: milli-GPU that it always gets; None: what its siblings leave of their parent's.
        limit: milli-GPU that it never exceeds; None: no limit.
        weight: its part of what nobody deserves, against its siblings of one priority. 0: only what nobody else wants.
        priority: siblings of higher priority are served first with what nobody deserves.
        min_run: seconds that a lease of it is not taken back; None: its parent's, at last the pool's.
        members: users who may ask in its name, and groups of them (``@group``); ``*``: all whom its parent admits.
    """

    path: str
    deserved: int | None = None
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    min_run: float | None = None
    members: tuple[str, ...] = (EVERYBODY,)

    def check(self) -> None:
        """Whether it can be by itself, whatever the tree.

        Raises:
            ProjectError: it cannot.
        """
        parts = self.path.split("/")
        if not all(map(is_name, parts)) or len(self.path) > MAXIMUM_PATH:
            raise ProjectError(
                f"{self.path[:80]!r} is no path of a project: names of {NAME_RULE}, joined by '/', "
                f"at most {MAXIMUM_PATH} characters"
            )
        if len(parts) > MAXIMUM_DEPTH:
            raise ProjectError(f"{self.path!r} has {len(parts)} levels, more than {MAXIMUM_DEPTH}")
        if parts[0] == DEFAULT and len(parts) > 1:
            raise ProjectError(f"{self.path!r} cannot be: the project {DEFAULT!r} has no projects below it")
        for name, value in (("deserved", self.deserved), ("limit", self.limit)):
            if value is not None and not 0 <= value <= MAXIMUM_MILLI:
                raise ProjectError(
                    f"{name} {value} milli-GPU of {self.path} is not within 0..{MAXIMUM_MILLI}"
                )
        if self.deserved is not None and self.limit is not None and self.deserved > self.limit:
            raise ProjectError(
                f"{self.path} cannot deserve {gpus(self.deserved)} and be limited to {gpus(self.limit)}"
            )
        if not 0 <= self.weight <= MAXIMUM_WEIGHT:
            raise ProjectError(f"weight {self.weight} of {self.path} is not within 0..{MAXIMUM_WEIGHT}")
        if abs(self.priority) > MAXIMUM_PRIORITY:
            raise ProjectError(f"priority {self.priority} of {self.path} is not within ±{MAXIMUM_PRIORITY}")
        if self.min_run is not None and not (math.isfinite(self.min_run) and self.min_run >= 0):
            raise ProjectError(f"min_run {self.min_run:g} s of {self.path} is not 0 or more")


class ProjectTree:
    """All projects, parents and ``default`` included even where nobody has made them. Never changes.

    Attributes:
        paths: all of them, parents before children.
        leaves: those without children; only these hold leases.
    """

    def __init__(self, projects: Iterable[Project]) -> None:
        """Adds ``default`` and missing parents, which deserve what their children do.

        Raises:
            ProjectError: a project cannot be so, or is named twice.
        """
        known: dict[str, Project] = {}
        for project in projects:
            project.check()
            if project.path in known:
                raise ProjectError(f"the project {project.path} is named twice")
            known[project.path] = project
        known.setdefault(DEFAULT, Project(DEFAULT))
        missing = {parent for path in known for parent in _parents(path)} - known.keys()
        for path in sorted(missing, key=lambda path: -path.count("/")):
            deserved = [project.deserved for project in known.values() if _parent(project.path) == path]
            numbers = [number for number in deserved if number is not None]
            known[path] = Project(path, deserved=sum(numbers) if len(numbers) == len(deserved) else None)
        self.paths = tuple(sorted(known, key=lambda path: (path.count("/"), path)))
        self._projects = {path: known[path] for path in self.paths}
        self._children: dict[str, tuple[str, ...]] = {
            parent: tuple(path for path in self.paths if _parent(path) == parent)
            for parent in {"", *(_parent(path) for path in self.paths)}
        }
        for path in self.paths:
            self._children.setdefault(path, ())
        self.leaves = tuple(path for path in self.paths if not self._children[path])
        self._ancestors = {path: (path, *_parents(path)) for path in self.paths}
        self._deserved: tuple[int, dict[str, int]] = (-1, {})

    def __contains__(self, path: object) -> bool:
        return path in self._projects

    def __getitem__(self, path: str) -> Project:
        return self._projects[path]

    def children(self, path: str) -> tuple[str, ...]:
        """Those right below `path`; of ``""`` the top level."""
        return self._children[path]

    def ancestors(self, path: str) -> tuple[str, ...]:
        """`path` itself first, then its parent, and so on to the top level."""
        return self._ancestors[path]

    def leaf(self, path: str) -> str:
        """`path` if leases may lie in it, else ``default``: where one counts whose project is gone."""
        return path if path in self._projects and not self._children[path] else DEFAULT

    def deserved(self, path: str, capacity: int) -> int:
        """Milli-GPU that `path` deserves of a pool of `capacity`.

        Siblings never deserve more together than their parent: where they were promised more (or devices were lost),
        all give way in proportion.
        """
        known = self._deserved
        if known[0] != capacity:
            # Kept in one assignment, and answered from our own: a report may ask for other capacities from its thread.
            known = self._deserved = (capacity, self._all_deserved(capacity))
        return known[1][path]

    def limit(self, path: str) -> int | None:
        """Milli-GPU that `path` itself never exceeds; its ancestors may be limited too."""
        return self._projects[path].limit

    def min_run(self, path: str, default: float) -> float:
        """Seconds that a lease of `path` is not taken back."""
        for name in self._ancestors[path]:
            own = self._projects[name].min_run
            if own is not None:
                return own
        return default

    def admits(self, path: str, user: str, groups: Collection[str] = ()) -> bool:
        """Whether `user`, who is in `groups`, may ask in the name of `path`."""
        return self._is_named(path, user, groups) is not False

    def projects_of(self, user: str, groups: Collection[str] = ()) -> tuple[str, ...]:
        """The leaves in whose name `user` may ask."""
        return tuple(path for path in self.leaves if self.admits(path, user, groups))

    def named_projects_of(self, user: str, groups: Collection[str] = ()) -> tuple[str, ...]:
        """Those of them that name `user` or one of `groups`, or whose ancestor does, rather than admit everybody."""
        return tuple(path for path in self.leaves if self._is_named(path, user, groups))

    def warnings(self, capacity: int) -> tuple[str, ...]:
        """What an administrator should know of the numbers, one sentence each."""
        said = []
        for parent, children in self._children.items():
            promised = sum(self._projects[child].deserved or 0 for child in children)
            available = self.deserved(parent, capacity) if parent else capacity
            whose = f"The projects of {parent}" if parent else "All projects"
            what = f"{parent} deserves" if parent else "the pool has"
            if promised > available:
                said.append(
                    f"{whose} deserve {gpus(promised)} together, but {what} {gpus(available)}: "
                    "what each deserves shrinks in proportion."
                )
                continue
            sure = all(self._projects[child].deserved is not None for child in children)
            if children and sure and promised < available:
                said.append(
                    f"{whose} deserve {gpus(promised)} together, but {what} {gpus(available)}: "
                    f"nobody is sure of the other {gpus(available - promised)}."
                )
        return tuple(said)

    def _is_named(self, path: str, user: str, groups: Collection[str]) -> bool | None:
        """None: everybody is admitted."""
        names = {user, *(GROUP + group for group in groups)}
        for name in self._ancestors[path]:
            members = self._projects[name].members
            if not names.isdisjoint(members):
                return True
            if EVERYBODY not in members:
                return False
        return None

    def _all_deserved(self, capacity: int) -> dict[str, int]:
        amounts = {"": capacity}
        for parent in ("", *self.paths):
            amounts.update(self._deserved_of_children(parent, amounts[parent]))
        del amounts[""]
        return amounts

    def _deserved_of_children(self, parent: str, amount: int) -> dict[str, int]:
        children = [self._projects[path] for path in self._children[parent]]
        sure = [Claim(c.path, c.deserved, c.deserved) for c in children if c.deserved]
        amounts = dict.fromkeys(self._children[parent], 0) | apportion(amount, sure)
        rest = [c for c in children if c.deserved is None]
        # A weight of 0 is against siblings of other weights; among themselves such are equal.
        rest = [c for c in rest if c.weight] or [replace(c, weight=1) for c in rest]
        left = amount - sum(amounts.values())
        return amounts | apportion(left, [Claim(c.path, c.weight, _least(c.limit, left)) for c in rest])


def gpus(milli: int) -> str:
    """An amount for people: ``2.5 GPUs``."""
    return f"{format_milli(milli)} GPU" if milli == WHOLE_DEVICE_MILLI else f"{format_milli(milli)} GPUs"


def _least(limit: int | None, amount: int) -> int:
    return amount if limit is None else min(limit, amount)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parents(path: str) -> tuple[str, ...]:
    """Above `path`, the nearest first."""
    found = []
    while path := _parent(path):
        found.append(path)
    return tuple(found)
