"""Fair shares by their definition: every single milli-GPU is handed to whom it is due. Slow and obvious."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gpupool.scheduler.fairshare import Project

Tree = Mapping[str, Project]


def with_parents(projects: list[Project]) -> dict[str, Project]:
    """The tree as it is meant: with `default`, and parents that deserve what their children do."""
    tree = {project.path: project for project in projects}
    tree.setdefault("default", Project("default"))
    for depth in (2, 1):
        for path in [path for path in tree if path.count("/") == depth]:
            parent = path.rsplit("/", 1)[0]
            if parent not in tree:
                below = [tree[child].deserved for child in children_of(tree, parent)]
                tree[parent] = Project(parent, deserved=None if None in below else sum(n or 0 for n in below))
    return tree


def children_of(tree: Tree, parent: str) -> list[str]:
    return [path for path in tree if path.rpartition("/")[0] == parent]


def solve_deserved(tree: Tree, capacity: int) -> dict[str, int]:
    """What each path deserves of `capacity`."""
    deserved = {"": capacity}
    todo = [""]
    while todo:
        parent = todo.pop()
        children = children_of(tree, parent)
        todo += children
        for path in children:
            deserved[path] = 0
        left = deserved[parent]
        while left:
            # What was promised comes first, in proportion to the promises.
            promised = [p for p in children if (tree[p].deserved or 0) > deserved[p]]
            if not promised:
                break
            due = min(promised, key=lambda p: (Fraction(deserved[p] + 1, tree[p].deserved or 1), p))
            deserved[due] += 1
            left -= 1
        others = [p for p in children if tree[p].deserved is None]
        while left:
            hungry = [p for p in others if tree[p].limit is None or deserved[p] < (tree[p].limit or 0)]
            if any(tree[p].weight for p in others):
                hungry = [p for p in hungry if tree[p].weight]
            if not hungry:
                break
            due = min(hungry, key=lambda p: (Fraction(deserved[p] + 1, tree[p].weight or 1), p))
            deserved[due] += 1
            left -= 1
    return deserved


def solve_shares(
    tree: Tree, capacity: int, requested: Mapping[str, int], usage: Mapping[str, Fraction]
) -> dict[str, int]:
    """What each path is entitled to."""
    deserved = solve_deserved(tree, capacity)

    def wants(path: str) -> int:
        children = children_of(tree, path)
        amount = sum(wants(child) for child in children) if children else requested.get(path, 0)
        limit = tree[path].limit
        return amount if limit is None else min(amount, limit)

    def used(path: str) -> Fraction:
        children = children_of(tree, path)
        return (
            sum((used(child) for child in children), Fraction(0))
            if children
            else usage.get(path, Fraction(0))
        )

    shares = {"": capacity}
    todo = [""]
    while todo:
        parent = todo.pop()
        children = children_of(tree, parent)
        todo += children
        sure = {path: min(deserved[path], wants(path)) for path in children}
        over = dict.fromkeys(children, 0)
        left = shares[parent] - sum(sure.values())
        first_of_all = {path for path in children if wants(path) > sure[path]}
        while left:
            hungry = [path for path in first_of_all if sure[path] + over[path] < wants(path)]
            if not hungry:
                break
            due = whose_turn(tree, first_of_all, hungry, over, {path: used(path) for path in children})
            over[due] += 1
            left -= 1
        for path in children:
            shares[path] = sure[path] + over[path]
    del shares[""]
    return shares


def whose_turn(
    tree: Tree, wanting: set[str], hungry: list[str], over: Mapping[str, int], used: Mapping[str, Fraction]
) -> str:
    """Who gets the next milli of what nobody deserves."""
    some_weight = [path for path in hungry if tree[path].weight]
    if not some_weight:
        top = max(tree[path].priority for path in hungry)
        return min((over[path], path) for path in hungry if tree[path].priority == top)[1]
    top = max(tree[path].priority for path in some_weight)
    bucket = {path for path in wanting if tree[path].weight and tree[path].priority == top}
    hungry = [path for path in some_weight if path in bucket]
    while True:
        total = sum(tree[path].weight for path in bucket)
        corrected = {
            path: max(Fraction(0), 2 * Fraction(tree[path].weight, total) - used[path]) for path in bucket
        }
        if not any(corrected.values()):
            corrected = {path: Fraction(tree[path].weight) for path in bucket}
        served = [path for path in hungry if corrected[path]]
        if served:
            return min(served, key=lambda path: ((over[path] + 1) / corrected[path], path))
        # All who weigh anything have what they want: the rest is divided as if they were not there.
        bucket = {path for path in bucket if not corrected[path]}
