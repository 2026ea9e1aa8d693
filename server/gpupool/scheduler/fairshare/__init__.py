"""Fair share: a tree of projects, what each is entitled to, and what may be taken back for whom.

:class:`Standings` is the whole of it at one moment; :class:`ProjectTree` what administrators have set. Pure: whole
milli-GPU, no clock.
"""

from gpupool.scheduler.fairshare.division import fair_shares
from gpupool.scheduler.fairshare.lease import HeldLease, Waiting
from gpupool.scheduler.fairshare.position import Standing
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.fairshare.tree import Project, ProjectError, ProjectTree
from gpupool.scheduler.fairshare.verdict import Verdict

__all__ = [
    "HeldLease",
    "Project",
    "ProjectError",
    "ProjectTree",
    "Standing",
    "Standings",
    "Verdict",
    "Waiting",
    "fair_shares",
]
