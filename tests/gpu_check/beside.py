"""Programs side by side on shares of one device: who gets how much of it, who waits, and who has which memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.gpu_check.comparisons import Bench, need
from tests.gpu_check.machine_code import need_machine_code
from tests.gpu_check.programs_run import Found, run
from tests.gpu_check.time_left import LeftOut

HERE: Final = Path(__file__).parent
#: Of all programs of `beside`, in seconds, without the time in which they train side by side; and of each other part.
_PATIENCE: Final = 150.0
_SHORT_PATIENCE: Final = 60.0
#: The shares of two that train, and how far the part of the first one in all steps may be from its share.
_TRAINING: Final = ("0.3", "0.7")
_TOLERANCE: Final = 0.05
#: The device is what limits both where they use it for such a part of the time.
_DEVICE_BOUND: Final = 0.9
#: Two that train make at least so large a part of the steps that one makes alone.
_LEAST_TOGETHER: Final = 0.8
#: Of those who look at each result while a long kernel runs: the longest wait, and the usual one, in seconds.
_LONGEST_WAIT: Final = 3.0
_USUAL_WAIT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A program on a share of its own.

    Attributes:
        name: of its files in the folder of the check.
        share: that it runs on.
        program: the file.
        what: its arguments, before those that say when it begins.
    """

    name: str
    share: str
    program: Path
    what: tuple[str, ...] = ()


def together(
    bench: Bench, neighbours: Sequence[Neighbour], seconds: float, patience: float
) -> dict[str, Found]:
    """What programs found that began at one moment and went on for so long; by their names."""
    start = bench.folder / "beside-start"
    start.unlink(missing_ok=True)
    ready = {one.name: bench.folder / f"{one.name}-ready" for one in neighbours}
    started: dict[str, Future[Found]] = {}
    with contextlib.ExitStack() as shares, ThreadPoolExecutor(len(neighbours)) as threads:
        commands = [shares.enter_context(bench.way.share(one.share)) for one in neighbours]
        for one, (prefix, environment) in zip(neighbours, commands, strict=True):
            ready[one.name].unlink(missing_ok=True)
            small = {"GPU_CHECK_SMALL": "1"} if bench.small else {}
            started[one.name] = threads.submit(
                run,
                one.program,
                prefix,
                {**environment, **bench.remote, **small},
                *one.what,
                str(ready[one.name]),
                str(start),
                str(seconds),
                seconds=patience,
                log=bench.folder / f"{one.name}.log",
            )
        # One that has ended will not get ready any more, and the other need not wait for it.
        while not all(path.exists() for path in ready.values()) and not any(
            future.done() for future in started.values()
        ):
            time.sleep(0.05)
        written = start.with_suffix(".new")
        written.write_text(str(time.time() + 1))
        written.rename(start)
        return {name: future.result() for name, future in started.items()}


def beside(bench: Bench, seconds: float = 15.0) -> Found:
    """Two sessions train side by side: which part of all steps each made, and how many more one makes alone.

    Raises:
        LeftOut: there is no pool, no PyTorch, or a software GPU without its kernels.
    """
    need("torch")
    _need_pool(bench)
    program = HERE / "frameworks" / "beside.py"
    patience = bench.time.of(_PATIENCE + seconds)
    end = time.monotonic() + patience
    one = Neighbour("beside-alone", _TRAINING[0], program)
    alone = together(bench, [one], seconds / 3, patience / 2)[one.name]
    need_machine_code(alone.get("error"), real=not bench.small)
    pair = [Neighbour(f"beside-{share}", share, program) for share in _TRAINING]
    both = together(bench, pair, seconds, max(1.0, end - time.monotonic()))
    by_share = {share: both[f"beside-{share}"] for share in _TRAINING}
    return training_verdict(alone, by_share, seconds, judge=not bench.small)


def training_verdict(alone: Found, both: Mapping[str, Found], seconds: float, *, judge: bool) -> Found:
    """Whether two that trained for so many seconds got their shares.

    Args:
        alone: what the one with the first share found when nobody was beside it.
        both: what they found together, by share.
        seconds: how long they were together.
        judge: a device that is no GPU keeps to no figure.
    """
    steps = {share: int(_figure(one, "steps")) for share, one in both.items()}
    used = {share: one.get("figures", {}).get("device_seconds") for share, one in both.items()}
    made = {share: round(of / max(1, sum(steps.values())), 3) for share, of in steps.items()}
    rate = _figure(alone, "steps") / max(0.001, _figure(alone, "seconds"))
    to_one = sum(steps.values()) / max(0.001, seconds) / rate if rate else 0.0
    known = [float(of) for of in used.values() if of is not None]
    bound = len(known) == len(both) and sum(known) > _DEVICE_BOUND * seconds
    first = next(iter(both))
    faults = _faults({"alone": alone, **both})
    faults += [f"{share} made no step" for share, of in steps.items() if not of]
    if judge and not faults:
        if bound and abs(made[first] - float(first)) > _TOLERANCE:
            faults.append(f"{first} is further than {_TOLERANCE} from its share")
        if to_one < _LEAST_TOGETHER:
            faults.append(f"both made less than {_LEAST_TOGETHER} of the steps of one alone")
    said = [f"{share} made {part} of all steps" for share, part in made.items()]
    said.append(
        f"device seconds {' + '.join(str(of) for of in used.values())} of {seconds:g}"
        f" ({'the device was the limit' if bound else 'the device was not the limit: no share is asked for'})"
    )
    said.append(f"one alone {rate:.1f} steps/s, both {to_one:.2f} times that")
    return {
        "ok": not faults,
        "steps": steps,
        "made": made,
        "device_seconds": used,
        "device_bound": bound,
        "alone_steps_per_s": round(rate, 2),
        "together_to_alone": round(to_one, 3),
        "programs": {"alone": alone, **both},
        "said": "; ".join([*said, *faults]),
    }


def both_full(bench: Bench, seconds: float = 20.0) -> Found:
    """Two sessions fill their memory at once: each has all of its share, and nothing of the other's. Raises LeftOut."""
    full = [bench.folder / f"full-{number}-full" for number in range(2)]
    for file in full:
        file.unlink(missing_ok=True)
    pieces = "64" if bench.small else "256"
    pair = [
        _by_hand(f"full-{number}", "fill", pieces, str(90 + number), str(full[number]), str(full[1 - number]))
        for number in range(2)
    ]
    found = _together_in_pool(bench, pair, seconds)
    faults = _faults(found)
    said = []
    for name, one in found.items():
        free, taken, piece = (_figure(one, f"{what}_mib") for what in ("free", "taken", "piece"))
        said.append(f"{name} took {taken:.0f} of {free:.0f} MiB")
        if one.get("error"):
            continue
        # The last piece may not fit, and nobody has more than the granularity of allocations beside that.
        if free - taken >= 2 * piece:
            faults.append(f"{name} was out of memory before the end of its share")
        if taken > free:
            faults.append(f"{name} had more than its share")
        if not one.get("both_full"):
            faults.append(f"{name} was not full at the same time as the other one")
        if not one.get("same"):
            faults.append(f"{name} read something else than it had written")
    return {"ok": not faults, "programs": found, "said": "; ".join([*said, *faults])}


def beside_long(bench: Bench, seconds: float | None = None) -> Found:
    """A kernel that runs for half a minute, and beside it somebody who waits for each of many tiny ones. Raises LeftOut."""
    length = seconds or (10.0 if bench.small else 30.0)
    pair = [_by_hand("long-kernel", "long"), _by_hand("long-ticks", "tick")]
    found = _together_in_pool(bench, pair, length)
    faults = _faults(found)
    ticks = found["long-ticks"]
    longest, usual = _figure(ticks, "longest_s"), _figure(ticks, "median_of_the_rest_s")
    if longest >= _LONGEST_WAIT:
        faults.append(f"a wait of {_LONGEST_WAIT:g} s or more")
    if usual >= _USUAL_WAIT:
        faults.append(f"half of the later waits took {_USUAL_WAIT:g} s or more")
    said = (
        f"{_figure(ticks, 'kernels'):.0f} kernels beside one of {length:g} s waited {_figure(ticks, 'first_s'):.2f} s at "
        f"first, at most {longest:.2f} s, usually {usual * 1e3:.1f} ms"
    )
    return {"ok": not faults, "programs": found, "said": "; ".join([said, *faults])}


def beside_upload(bench: Bench, seconds: float = 5.0) -> Found:
    """How much slower one computes while another uploads. A report: no figure is wrong. Raises LeftOut."""
    mib = "64" if bench.small else "2048"
    alone = _together_in_pool(bench, [_by_hand("upload-alone", "work")], seconds)
    both = _together_in_pool(
        bench, [_by_hand("upload-work", "work"), _by_hand("upload-copies", "upload", mib)], seconds
    )
    before = _figure(alone["upload-alone"], "rounds_per_s")
    beside_it = _figure(both["upload-work"], "rounds_per_s")
    slowdown = round(before / beside_it, 3) if beside_it else 0.0
    faults = _faults(alone | both)
    if not before or not beside_it:
        faults.append("nothing was computed")
    said = f"{slowdown} times as slow beside uploads of {_figure(both['upload-copies'], 'gib_per_s')} GiB/s"
    return {
        "ok": not faults,
        "slowdown": slowdown,
        "programs": alone | both,
        "said": "; ".join([said, *faults]),
    }


#: Those that need nothing but the driver's API.
PARTS: Final[Mapping[str, Callable[[Bench], Found]]] = {
    "both_full": both_full,
    "beside_long": beside_long,
    "beside_upload": beside_upload,
}


def _by_hand(name: str, *what: str) -> Neighbour:
    """One that uses the driver's API by hand, on half of the device."""
    return Neighbour(name, "0.5", HERE / "beside_program.py", what)


def _together_in_pool(bench: Bench, neighbours: Sequence[Neighbour], seconds: float) -> dict[str, Found]:
    _need_pool(bench)
    return together(bench, neighbours, seconds, bench.time.of(_SHORT_PATIENCE + seconds))


def _need_pool(bench: Bench) -> None:
    if not bench.way.pool:
        raise LeftOut("needs the pool")


def _figure(found: Found, name: str) -> float:
    return float(found.get("figures", {}).get(name) or 0.0)


def _faults(programs: Mapping[str, Found]) -> list[str]:
    """Why some programs found nothing: they failed, or (by their result) were not ready when the others began."""
    failed = [f"{name}: {one['error'].strip()[-400:]}" for name, one in programs.items() if one.get("error")]
    return failed + [f"{name} was late" for name, one in programs.items() if one.get("result") is False]
