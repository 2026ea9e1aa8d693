"""What the session machine may expect of the product. A constant is changed together with the product."""

from __future__ import annotations

from typing import Final

#: Memory of parked sessions leaves a device when somebody else needs the room, and comes back.
EVICTION: Final = True
#: Also when a share that is held grows. (A refusal names the session in the way.)
EVICTION_FOR_RESIZE: Final = True
#: A parked session goes on on another device of its node when its own has no room.
OTHER_DEVICE: Final = True
#: The same in another node.
OTHER_NODE: Final = True
#: A broken connection costs nothing.
RECONNECT: Final = True
#: So does a call of a program whose session was parked, if its worker is gone: it is refused, and not kept waiting.
DEAD_WORKER_OF_A_PARKED_SESSION: Final = False
