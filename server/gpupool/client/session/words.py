"""What the holder of a GPU session is told: one sentence for each way in which it can end or be refused.

The machine decides what happened; a :class:`Words` says it to one kind of holder. These are the words of a program.
"""

from __future__ import annotations

from typing import Final

from gpupool.sentences import reasons

#: Why calls wait while the pool does not say whether the lease goes on.
SILENT_POOL: Final = (
    "The GPU pool has not answered for so long that this share may be gone. Calls wait until it answers."
)


def _taken_back(reason: str) -> str:
    return f"The pool took this program's GPU share back: {reasons.because(reason)}."


class Words:
    """The sentences for one kind of holder.

    Attributes:
        holder: what kind it is: ``program``.
        way_out: what to do next; part of every sentence that says the GPU is gone.
        nothing: what a CUDA call is told where nothing is attached and nothing was.
        not_strict: a session is strict from its first attach on, or never.
        reset: what is said after the GPU session was ended on request.
    """

    holder = "program"
    way_out = "Put %%gpu 0.2 above the cell, or use gpupool.attach(0.2)."
    nothing = "No GPU is attached."
    not_strict = (
        "The GPU session of this program began without a hard cap (strict), and keeps its way of sharing."
    )
    reset = "The GPU session was reset: arrays in GPU memory are lost, Python variables stay. The next attach begins another."

    def ended(self, reason: str, detail: str = "") -> str | None:
        """What is said of a lease that ended; None: nothing, it was its time."""
        if reason == "exit":
            return None
        return detail or self.taken_back(reason)

    def taken_back(self, reason: str) -> str | None:
        """What is said of a lease that its holder waits for again."""
        return _taken_back(reason)

    def gone(self, reason: str) -> str:
        """What is said of a session that ended with all that it had in GPU memory."""
        return _taken_back(reason)

    # --- the same for every kind ----------------------------------------------------------------

    @property
    def closed(self) -> str:
        return f"This {self.holder} has ended."

    @property
    def pending(self) -> str:
        """Why a second request is refused while the first one waits."""
        return f"This {self.holder} already asks for a GPU."

    @property
    def reset_later(self) -> str:
        """Why a reset that the pool does not hear of is not refused, but late."""
        return (
            "The GPU pool does not answer; it is told to end the GPU session as soon as it does. "
            f"The {self.holder} cannot use that session any more."
        )

    @property
    def not_attached(self) -> str:
        return f"No GPU is attached to this {self.holder}. {self.way_out}".rstrip()

    @property
    def kept(self) -> str:
        """What a CUDA call is told while the session is parked."""
        return f"No GPU is attached; what is in GPU memory is kept. {self.way_out}".rstrip()

    @property
    def state_lost(self) -> str:
        """That another session has taken the place of one that had memory."""
        return f"The GPU state of this {self.holder} was lost; arrays on the GPU must be made again."

    def another_count(self, held: int, asked: int) -> str:
        """Why a share of so many GPUs is not given beside one of another number."""
        devices = f"{held} GPU{'s' if held > 1 else ''}"
        return f"This {self.holder} already holds a share of {devices}; detach it before asking for {asked}."


PROGRAM_WORDS: Final = Words()
