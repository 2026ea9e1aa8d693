"""``with gpupool.attach(0.2):`` and ``@gpupool.gpu(0.2)`` in a kernel: scopes of the kernel's own session."""

from __future__ import annotations

from gpupool.client.keeper import GivenUp
from gpupool.client.lender import AttachError
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.ending import notes_of, wait_for_work
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.scope import STILL_ATTACHED, Scopes, say


class ScopeLender:
    """Gives code of the kernel its GPU, as ``%%gpu`` gives it to a cell; it says only what a person must know."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    def enter(self, request: GpuRequest, scope: str, given_up: GivenUp) -> None:
        try:
            answer = self._scopes.attach(request, scope, given_up=given_up, of_cell=False)
        except GpuError as error:
            raise AttachError(error.reason, str(error)) from None
        try:
            device.attach(software=bool(answer.get("software")))
        except GpuError as error:
            self._scopes.give_back(scope)
            raise AttachError(error.reason, str(error)) from None
        except BaseException:
            self._scopes.give_back(scope)
            raise

    def leave(self, scope: str) -> None:
        try:
            ending = wait_for_work()
            if not ending.session_ended:
                self._scopes.lacking.tell("code")
        except KeyboardInterrupt:
            # Nobody else ends this scope.
            self._scopes.give_back(scope)
            raise
        if ending.session_ended:
            self.reset()
        else:
            for note in self._scopes.give_back(scope):
                # Whoever else has the share goes on with it: that is no news at the end of each block.
                if note != STILL_ATTACHED:
                    say(note)
        if ending.interrupted:
            raise KeyboardInterrupt
        if (failure := self._scopes.note_failure(ending.error)) is not None:
            raise AttachError("failed", str(failure))
        # The block may have reset the session itself.
        if (notes := notes_of(ending)) and device.session().reason != "reset":
            raise AttachError("deferred", "; ".join(notes))

    def reset(self) -> None:
        try:
            self._scopes.reset()
        except GpuError as error:
            raise AttachError(error.reason, str(error)) from None
