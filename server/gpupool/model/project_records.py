"""Projects, limits of users, and what both have used."""

from __future__ import annotations

from dataclasses import dataclass

#: The project of who names none.
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """A project in the tree: ``research/vision`` is a child of ``research``. Only those without children hold leases.

    Attributes:
        deserved: milli-GPU that it always gets; None: what its siblings leave of their parent's.
        limit: milli-GPU that it never exceeds; None: no limit.
        weight: its part of what nobody deserves, against its siblings of one priority.
        priority: siblings of higher priority are served first with what nobody deserves.
        min_run: seconds that a lease of it is not taken back; None: its parent's, at last the pool's.
        members: users who may ask in its name; ``*``: everybody.
    """

    path: str
    deserved: int | None = 0
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    min_run: float | None = None
    members: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """What one user may have; ``*`` is for users without a record of their own. None: no limit.

    Attributes:
        milli: sum of milli-GPU held at a time.
        shares: number of device shares held at a time.
        largest_milli: milli-GPU of one request.
        gpu_seconds: milli-GPU-seconds / 1000 within `window_seconds`, counted from the first use.
    """

    user: str
    milli: int | None = None
    shares: int | None = None
    largest_milli: int | None = None
    gpu_seconds: int | None = None
    window_seconds: int = 86_400


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """What ended leases have used, of a user (``user/alice``) or a project (``project/research/vision``).

    Live leases count on top, from their grant on. Times are stored as wall-clock time.

    Attributes:
        window_from: beginning of the user's present window; None: nothing used in it yet.
        window_milli_ms: milli-GPU-milliseconds used in it.
        decayed_milli_seconds: milli-GPU-seconds, each halved once every half-life, as of `as_of`.
    """

    id: str
    window_from: float | None = None
    window_milli_ms: int = 0
    decayed_milli_seconds: float = 0.0
    as_of: float = 0.0
