"""The word that somebody may have meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like it; empty: none is like it."""
    # Dashes make any two options alike.
    names = {name.lower().lstrip("-"): name for name in known}
    found = get_close_matches(word.lower().lstrip("-"), names, n=1, cutoff=0.6)
    return names[found[0]] if found else ""
