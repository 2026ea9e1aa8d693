"""Which commands somebody may have meant by words that are none: by likeness to those that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final

#: Two words are alike from here on; 1 is the same word.
_ALIKE: Final = 0.75
#: No more are offered.
_MOST: Final = 6
_LIST: Final = "list"


def meant(
    group: Sequence[str], said: Sequence[str], commands: Iterable[str], groups: Iterable[str]
) -> list[str]:
    """Paths of commands that are like `said`, which was written behind `group`; the likeliest only.

    Args:
        group: words of the group that was found, none for the whole program.
        said: what followed; its first word is no command of that group.
        commands: paths such as ``node start``.
        groups: paths of groups, such as ``node``.
    """
    leaves, above = list(commands), set(groups)
    words = [word for word in said[:2] if not word.startswith("-")]
    attempts = [*([[*group, words[0]]] if group and words else []), words, words[:1], words[1:]]
    for attempt in attempts:
        tokens = [token for word in attempt for token in _tokens(word)]
        found = _likest(tokens, [*leaves, *above])
        if tokens and found:
            plural = attempt[-1].endswith("s")
            return sorted(
                f"{path} {_LIST}" if path in above and plural and f"{path} {_LIST}" in leaves else path
                for path in found
            )[:_MOST]
    return []


def offered(program: str, paths: Sequence[str]) -> str:
    """``; did you mean 'gpupool node list' or 'gpupool gpu list'?``; nothing for none."""
    if not paths:
        return ""
    quoted = [f"'{program} {path}'" for path in paths]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"; did you mean {listed}?"


def _tokens(word: str) -> list[str]:
    """``list-gpus`` → ``list``, ``gpu``: of a word without what tells one from many."""
    return [part.removesuffix("s") or part for part in re.split(r"[-_\s]+", word.lower()) if part]


def _likest(tokens: Sequence[str], paths: Iterable[str]) -> list[str]:
    """The paths in which each of these has a word like it, fewest other words first; equally good ones together."""
    scores: dict[str, float] = {}
    for path in paths:
        theirs = [token for word in path.split() for token in _tokens(word)]
        best = [max((_likeness(token, other) for other in theirs), default=0.0) for token in tokens]
        if min(best, default=0.0) >= _ALIKE:
            scores[path] = sum(best) / len(best) - 0.1 * max(0, len(theirs) - len(tokens))
    top = max(scores.values(), default=0.0)
    return [path for path, score in scores.items() if score >= top - 1e-6]


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
