"""Other libraries on a session's operands: which there are, and whether they are right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from gemmctl.device.base import Facts, Session
from gemmctl.errors import UsageError
from gemmctl.judging.agreement import Witness
from gemmctl.measuring.baselines import cublas, torch
from gemmctl.measuring.baselines.base import Baseline, Inapplicable
from gemmctl.measuring.bench import Entry, Rival
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

BASELINES: dict[str, Callable[[CudaSession, Plan], Baseline]] = {
    "cublas": cublas.Grouped,
    "cublas-loop": partial(cublas.PerGroup, streams=1),
    "cublas-streams": partial(cublas.PerGroup, streams=cublas.STREAMS),
    "torch": partial(torch.Torch, make=torch.loop),
    "torch-bmm": partial(torch.Torch, make=torch.batched),
    "torch-grouped": partial(torch.Torch, make=torch.grouped),
}


def chosen(text: str | None) -> tuple[str, ...]:
    """The baselines that a list with commas names; ``all`` is every one, None is none.

    Raises UsageError if there is none of a name.
    """
    if text is None:
        return ()
    names = dict.fromkeys(text.split(","))
    if "all" in names:
        return tuple(BASELINES)
    for name in names:
        if name not in BASELINES:
            near = difflib.get_close_matches(name, BASELINES, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"there is no baseline '{name}'; {hint}There are {', '.join(BASELINES)}, and all"
            )
    return tuple(names)


def check_device(names: Sequence[str], facts: Facts) -> None:
    """Raise UsageError if there are baselines to be timed on a device that is no GPU."""
    if names and facts.kind != "cuda":
        raise UsageError(
            "--against times libraries for GPUs and needs a Hopper GPU; this run is on the CPU"
        )


def enter(names: Sequence[str], session: Session, plan: Plan, spec: DataSpec) -> list[Entry]:
    """Make each baseline ready to be timed, if it can run the plan and its result agrees with ours.

    The session is one on a GPU and was opened with ``spec``. Raises DeviceFailed or DeviceHung.
    """
    if not names:
        return []
    witness = Witness(plan, session, spec)
    return [_entry(name, cast("CudaSession", session), plan, witness) for name in names]


def _entry(name: str, session: CudaSession, plan: Plan, witness: Witness) -> Entry:
    try:
        baseline = BASELINES[name](session, plan)
    except Inapplicable as reason:
        return Entry(Rival(name, "n/a", str(reason)))
    session.poison()
    baseline.queue()
    baseline.deliver()
    if (disagreement := witness.disagreement(session)) is not None:
        return Entry(Rival(name, "wrong", str(disagreement)))
    return Entry(Rival(name), _Timed(session, baseline))


class _Timed:
    """A baseline as something to sample."""

    def __init__(self, session: CudaSession, baseline: Baseline) -> None:
        self._session, self._baseline = session, baseline

    def time(self, count: int, *, cold: bool) -> list[float]:
        return self._session.time(count, cold=cold, queue=self._baseline.queue)
