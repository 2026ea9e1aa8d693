"""What people are told of a kernel's GPU session: one sentence for each way in which it can end or be refused."""

from __future__ import annotations

from gpupool.sentences import reasons

#: Why a lease or a session ended.
REASONS = frozenset(
    {
        *(
            "exit",
            "release",
            "idle",
            "deadline",
            "budget",
            "reclaim",
            "preempt",
            "consolidate",
            "lost",
            "admin",
        ),
        *("reset", "stopped"),
    }
)

#: Why a session ended with all its memory, where it is neither that it was lost nor that an administrator closed it.
SESSION_ENDS = frozenset({"reset", "stopped"})

#: What to do next; the end of every sentence that says the GPU is gone.
WAY_OUT = "Put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar."

#: What is said after the GPU session was ended on request.
RESET = reasons.ended("reset")

#: Why a second request of a kernel is refused while the first one waits.
PENDING = "This kernel already asks for a GPU."

#: A session is strict from its first attach on, or never.
NOT_STRICT = (
    "The GPU session of this kernel began without --strict, and keeps its way of sharing; restart the kernel "
    "to begin one with a hard cap."
)

#: What the client runtime says when a CUDA call finds nothing attached.
NOT_ATTACHED = f"No GPU is attached. {WAY_OUT}"


def ended_message(reason: str, detail: str = "") -> str | None:
    """What is said of a lease that ended; None: nothing, it was its time."""
    sentence = detail or (
        "" if reason == "exit" else reasons.ended(reason) or f"The GPU lease ended ({reason})."
    )
    return f"{sentence} {WAY_OUT}".strip() if sentence else None


_CAUSES = {
    "lost": "its worker or node failed",
    "stopped": "a kernel went on running after its lease, and this GPU cannot stop one",
}


def gone_message(reason: str) -> str:
    """What is said of a session that ended with all that it had in GPU memory."""
    cause = _CAUSES.get(reason, f"its session was ended ({reason})")
    return f"The GPU is gone with what was in its memory: {cause}. Arrays on it must be made again. {WAY_OUT}"
