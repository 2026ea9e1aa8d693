"""What people are told of a kernel's GPU session: one sentence for each way in which it can end or be refused."""

from __future__ import annotations

from typing import Final

from gpupool.client.session.words import Words

#: What to do next; the end of every sentence that says the GPU is gone.
WAY_OUT = "Put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar."

#: What is said after the GPU session was ended on request.
RESET = "The GPU session was reset: arrays in GPU memory are gone, Python variables are kept. The next attach begins a new one."

#: A session is strict from its first attach on, or never.
NOT_STRICT = (
    "The GPU session of this kernel began without --strict, and keeps its way of sharing; restart the kernel "
    "to begin one with a hard cap."
)

#: What the client runtime says when a CUDA call finds nothing attached.
NOT_ATTACHED = f"No GPU is attached. {WAY_OUT}"

ENDED_SENTENCES = {
    "exit": "",
    "release": "The GPU was detached; what is in its memory is kept.",
    "idle": "The GPU went back to the pool because nothing used it; what is in its memory is kept.",
    "deadline": "The time that was asked for with --for is over; what is in GPU memory is kept.",
    "budget": "The GPU hours that you may have are used up for now; what is in GPU memory is kept.",
    "reclaim": "The pool gave the GPU to a project that is entitled to it; what is in GPU memory is kept.",
    "preempt": "The pool gave the GPU to a request with a higher priority; what is in GPU memory is kept.",
    "consolidate": "The GPU share moves to another place so that another request fits; what is in GPU memory is kept.",
    "lost": "The connection to the GPU was lost.",
    "admin": "An administrator took the GPU back.",
    "reset": RESET,
    "stopped": "The GPU session was ended because a kernel went on running after its lease.",
}

_CAUSES = {
    "lost": "its worker or node failed",
    "stopped": "a kernel went on running after its lease, and this GPU cannot stop one",
}


class KernelWords(Words):
    """How people are told of a notebook's kernel."""

    holder = "kernel"
    way_out = WAY_OUT
    nothing = NOT_ATTACHED
    not_strict = NOT_STRICT
    reset = RESET

    def ended(self, reason: str, detail: str = "") -> str | None:
        sentence = detail or ENDED_SENTENCES.get(reason, f"The GPU lease ended ({reason}).")
        return f"{sentence} {WAY_OUT}".strip() if sentence else None

    def taken_back(self, reason: str) -> str | None:
        return ENDED_SENTENCES.get(reason)

    def gone(self, reason: str) -> str:
        cause = _CAUSES.get(reason, f"its session was ended ({reason})")
        return f"The GPU is gone with what was in its memory: {cause}. Arrays on it must be made again. {WAY_OUT}"


KERNEL_WORDS: Final = KernelWords()
