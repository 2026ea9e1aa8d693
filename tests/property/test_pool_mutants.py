"""The test of the test: each of these mistakes, put into the pool, must be found by the
tests of the machine: the single rules (tests/unit) or the random stories (tests/property)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    right: str
    wrong: str


MUTANTS = [
    Mutant(
        "a share is reused before its worker is fenced",
        "pool/leases/timer_rules.py",
        "step.now >= lease.covered_at + step.timers.reuse",
        "step.now >= lease.covered_at + step.timers.reuse / 2",
    ),
    Mutant(
        "a share that is being given back counts as free",
        "pool/model/holds.py",
        "if not lease.holds:",
        "if not lease.live:",
    ),
    Mutant(
        "a late renewal brings a lease back",
        "pool/lifecycle/machine.py",
        'if lease is not None and lease.state == "attached" and lease.part == 0:',
        "if lease is not None and lease.holds and lease.part == 0:\n                lease = replace(lease, state='attached')",
    ),
    Mutant(
        "the epoch does not grow",
        "pool/leases/lease_rules.py",
        "epoch=session.epoch + 1,",
        "epoch=max(1, session.epoch),",
    ),
    Mutant(
        "a restart forgets that shares may still be served",
        "pool/leases/timer_rules.py",
        "            covered_at=step.now,\n            since=step.now,\n            renew_by=step.now",
        "            since=step.now,\n            renew_by=step.now",
    ),
    Mutant(
        "a worker that is missing from a hello counts as dead",
        "pool/nodes/node_rules.py",
        'lease_rules.worker_gone(step, session, "lost", why, confirmed=False)',
        'lease_rules.worker_gone(step, session, "lost", why, confirmed=True)',
    ),
    Mutant(
        "a heartbeat's answer extends leases that are over",
        "pool/nodes/node_rules.py",
        "        if lease.live:\n            state.leases[lease.id] = replace(lease, covered_at=step.now)\n",
        "        if lease.live:\n            state.leases[lease.id] = replace(lease, covered_at=step.now)\n"
        "        if lease.holds:\n",
    ),
    Mutant(
        "a resize frees the difference before the worker confirmed",
        "model/lease_records.py",
        "max(old.milli, new.milli), max(old.mib, new.mib)",
        "new.milli, new.mib",
    ),
    Mutant(
        "the same key is granted again",
        "pool/leases/lease_rules.py",
        "    state.keys[key_of(request.user, key)] = lease_id\n",
        "",
    ),
    Mutant(
        "a device is oversold by a fifth",
        "scheduler/sizes.py",
        "placed.milli <= device.free_milli and placed.mib <= device.free_mib",
        "placed.milli <= device.free_milli + 200 and placed.mib <= device.free_mib + 800",
    ),
    Mutant(
        "one lease too many fits into the quota",
        "scheduler/fit.py",
        "if quota.milli is not None and held_milli + asked > quota.milli:",
        "if quota.milli is not None and held_milli > quota.milli:",
    ),
    Mutant(
        "a node that comes back is not told what is over",
        "pool/nodes/node_rules.py",
        '    elif lease.state == "releasing":\n',
        '    elif lease.state == "releasing":\n        return lease_rules.end(step, lease, "it is back")\n',
    ),
    Mutant(
        "room counts as made before the worker has confirmed",
        "pool/model/holds.py",
        'if session.place == "device" and not covered and not session.worker_gone:',
        'if session.place == "device" and not covered and session.parking is None and not session.worker_gone:',
    ),
    Mutant(
        "what a session keeps when its lease ends is not heard",
        "pool/nodes/node_rules.py",
        'if event.worker is not None and session.state != "closed":',
        'if event.worker is not None and session.state == "closed":',
    ),
    Mutant(
        "host memory is promised twice",
        "pool/model/holds.py",
        'leaving = session.parking is not None and session.parking.place == "host"',
        "leaving = False",
    ),
    Mutant(
        "the worker that a session left is forgotten at once",
        "pool/leases/lease_rules.py",
        "left = LeftWorker(session.node, session.place, session.device_ids, kept_mib(session))",
        "left = None",
    ),
    Mutant(
        "a new worker that fails takes the session with it",
        "pool/leases/moving_rules.py",
        "if lease is None or lease.node != node or epoch not in (None, lease.epoch):",
        "if lease is None or lease.node != node or epoch not in (None, lease.epoch + 1):",
    ),
    Mutant(
        "the old worker's end ends a session that moves",
        "pool/leases/moving_rules.py",
        "    if lease is None or not lease.live:\n        return False\n    if not session.source_gone:",
        "    if lease is not None or not lease.live:\n        return False\n    if not session.source_gone:",
    ),
    Mutant(
        "a session is attached where its old lease was",
        "pool/leases/lease_rules.py",
        "        device_ids=tuple(share.device_id for share in lease.shares),\n        place=",
        "        place=",
    ),
    Mutant(
        "a gang serves when its first worker does",
        "pool/leases/gang_rules.py",
        'elif all(part.state == "starting" and part.ready for part in parts):',
        'elif any(part.state == "starting" and part.ready for part in parts):',
    ),
    Mutant(
        "the end of one part's lease leaves the others",
        "pool/leases/gang_rules.py",
        "        if any(not part.live for part in parts):",
        "        if all(not part.live for part in parts):",
    ),
    Mutant(
        "the end of one part's session leaves the others",
        "pool/leases/gang_rules.py",
        "        _close_all(step, state.session_parts(session))",
        "        _close_all(step, [session])",
    ),
    Mutant(
        "a new size counts when one part has taken it",
        "pool/leases/resize_rules.py",
        "if not all(part.resize is not None and part.resize.done for part in parts):",
        "if not any(part.resize is not None and part.resize.done for part in parts):",
    ),
    Mutant(
        "a part that went back to its old size keeps no room for the new one",
        "pool/leases/resize_rules.py",
        "_apply(step, replace(part, shares=part.resize.shares), part.shares)",
        "_apply(step, part, part.shares)",
    ),
    Mutant(
        "two parts of a gang meet on one node",
        "scheduler/gang.py",
        "avoid=part.avoid | {other.node for other in parts if other is not part}",
        "avoid=part.avoid",
    ),
    Mutant(
        "one part of a gang goes on although another has no room",
        "scheduler/gang.py",
        "    if not waiting:",
        "    if shares:",
    ),
    Mutant(
        "the scheduler goes on seeing what a lease held",
        "pool/model/live_view.py",
        "gone = {device_id for device_id, _ in before if device_id not in by_device}",
        "gone = {device_id for device_id, _ in before if by_device and device_id not in by_device}",
    ),
    Mutant(
        "an index goes on naming what does not belong to it any more",
        "model/index.py",
        "if known is not None and (name != known[0] or self._table.place(key) != known[1]):",
        "if known is not None and name is not None and (name != known[0] or self._table.place(key) != known[1]):",
    ),
]


@pytest.mark.slow
@pytest.mark.skipif("GPUPOOL_MUTANTS" not in os.environ, reason="takes minutes; set GPUPOOL_MUTANTS=1")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_mistake_is_found(mutant: Mutant, tmp_path: Path) -> None:
    package = tmp_path / "gpupool"
    shutil.copytree(
        ROOT / "server" / "gpupool",
        package,
        ignore=shutil.ignore_patterns("_native", "__pycache__", "cli", "node_modules"),
    )
    source = package / mutant.file
    text = source.read_text()
    assert text.count(mutant.right) == 1, "the place of this mistake is not in the source any more"
    source.write_text(text.replace(mutant.right, mutant.wrong))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "tests/unit/test_pool_machine.py",
            "tests/unit/test_pool_outages.py",
            "tests/unit/test_pool_parking.py",
            "tests/unit/test_gang_scheduler.py",
            "tests/unit/test_pool_gangs.py",
            "tests/property/test_pool_machine.py",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "GPUPOOL_STORIES": "300",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "examples"),
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 1, f"not found:\n{done.stdout[-2000:]}"
    assert "1 failed" in done.stdout, done.stdout[-2000:]
