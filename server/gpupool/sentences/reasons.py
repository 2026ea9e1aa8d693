"""Why a lease or a session ended, in words: the ids of `gpupool.model.lease_records.REASONS`, which others learn, too."""

from __future__ import annotations

from gpupool.sentences.render import catalogue, render
from gpupool.sentences.sentence import Sentence, say


def headline(reason: str) -> str:
    """``Taken back by an administrator``; an id of a later version stands for itself: ``Released (new)``."""
    return _words(say(f"reason.{reason}")) or f"Released ({reason})"


def because(reason: str) -> str:
    """What reads on behind a colon: ``an administrator released it``; an id of a later version stands for itself."""
    return _words(say(f"because.{reason}")) or reason


def ended(reason: str) -> str:
    """What a holder is told, with what became of its memory; empty: there is nothing to say."""
    return _words(say(f"ended.{reason}"))


def _words(sentence: Sentence) -> str:
    return render(sentence) if sentence.code in catalogue() else ""
