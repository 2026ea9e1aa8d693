"""Why leases and sessions end: the ids, the same in every API, log, event and screen, and their words."""

from __future__ import annotations

from typing import Final

from gpupool.sentences import param
from gpupool.sentences.render import catalogue, render
from gpupool.sentences.sentence import Sentence, say

#: Why a lease ended or a session closed. `reset`: its user ended the session; `stopped`: its kernel ran on after its
#: lease had ended, on a device whose driver cannot stop one; `upgrade`: its worker was of another version than its node's
#: agent, which had been started again. The page has them from here (`typescript.py`).
REASONS: Final = (
    "exit", "release", "idle", "deadline", "budget", "reclaim", "preempt", "consolidate", "drain", "lost", "admin",
    "reset", "stopped", "upgrade",
)  # fmt: skip
#: Why a holder gives back what it has. Every other reason is the pool's to say, and is counted as what the pool did.
OF_HOLDERS: Final = ("release", "exit", "idle", "reset")


def headline(reason: str) -> str:
    """``Taken back by an administrator``; an id of a later version stands for itself: ``Released (new)``."""
    return _words(say(f"reason.{reason}")) or f"Released ({reason})"


def because(reason: str) -> str:
    """What reads on behind a colon: ``an administrator released it``; an id of a later version stands for itself."""
    return _words(say(f"because.{reason}")) or reason


def ended(reason: str) -> str:
    """What a holder is told, with what became of its memory; empty: there is nothing to say."""
    return _words(say(f"ended.{reason}"))


def gone(reason: str) -> str:
    """Why a session ended with all its memory, as what reads on behind a colon."""
    return _words(say(f"gone.{reason}")) or render(say("gone", reason=param.text(reason)))


def _words(sentence: Sentence) -> str:
    return render(sentence) if sentence.code in catalogue() else ""
