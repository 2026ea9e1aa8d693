"""What people are told of a kernel's GPU session: one sentence for each way in which it can end or be refused."""

from __future__ import annotations

from typing import Final

from gpupool.client.session.words import Words
from gpupool.sentences import reasons

#: What to do next; the end of every sentence that says the GPU is gone.
WAY_OUT = "Put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar."

#: What is said after the GPU session was ended on request.
RESET = reasons.ended("reset")

#: A session is strict from its first attach on, or never.
NOT_STRICT = (
    "The GPU session of this kernel began without --strict, and keeps its way of sharing; restart the kernel "
    "to begin one with a hard cap."
)

#: What the client runtime says when a CUDA call finds nothing attached.
NOT_ATTACHED = f"No GPU is attached. {WAY_OUT}"

#: What is said where nobody waits for a lease that may be over.
GIVEN_BACK = "The GPU pool has not answered for so long that the GPU was given back."


class KernelWords(Words):
    """How people are told of a notebook's kernel."""

    holder = "kernel"
    way_out = WAY_OUT
    nothing = NOT_ATTACHED
    not_strict = NOT_STRICT
    reset = RESET

    def ended(self, reason: str, detail: str = "") -> str | None:
        sentence = detail or (
            "" if reason == "exit" else reasons.ended(reason) or f"The GPU lease ended ({reason})."
        )
        return f"{sentence} {WAY_OUT}".strip() if sentence else None

    def taken_back(self, reason: str) -> str | None:
        return reasons.ended(reason) or None

    def gone(self, reason: str) -> str:
        return f"The GPU is gone with what was in its memory: {reasons.gone(reason)}. Arrays on it must be made again. {WAY_OUT}"


KERNEL_WORDS: Final = KernelWords()
