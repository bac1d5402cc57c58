"""Other libraries on a session's operands: which there are, and whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from gemmctl.device.base import WARM_RUNS, Facts, Sample, Session, repeat
from gemmctl.errors import DeviceFailed, DeviceHung, UsageError, unknown
from gemmctl.judging.agreement import Witness
from gemmctl.measuring.baselines import cublas, cublaslt, deepgemm, torch
from gemmctl.measuring.baselines.base import Baseline, Inapplicable, NoGraph, Queue, trial
from gemmctl.measuring.bench import Entry, Form, Pace, Rival
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

BASELINES: dict[str, Callable[[CudaSession, Plan], Baseline]] = {
    "cublas": cublas.grouped,
    "cublas-loop": partial(cublas.per_group, streams=1),
    "cublas-streams": partial(cublas.per_group, streams=cublas.STREAMS),
    "cublaslt": cublaslt.fastest,
    "torch": partial(torch.Torch, make=torch.loop),
    "torch-bmm": partial(torch.Torch, make=torch.batched),
    "torch-grouped": partial(torch.Torch, make=torch.grouped),
    "deepgemm": partial(torch.Torch, make=deepgemm.grouped),
}


def chosen(text: str | None) -> tuple[str, ...]:
    """The baselines that a list with commas names; ``all`` is every one, None is none.

    Raises UsageError if there is none of a name.
    """
    if text is None:
        return ()
    names = dict.fromkeys(text.split(","))
    every = [*BASELINES, "all"]
    for name in names:
        if name not in every:
            raise UsageError(unknown(f"there is no baseline '{name}'", name, every))
    return tuple(BASELINES if "all" in names else names)


def check_device(names: Sequence[str], facts: Facts) -> None:
    """Raise UsageError if there are baselines to be timed on a device that is no GPU."""
    if names and facts.kind != "cuda":
        raise UsageError(
            "--against times libraries for GPUs and needs a Hopper GPU; this run is on the CPU"
        )


def enter(
    names: Sequence[str],
    session: Session,
    plan: Plan,
    spec: DataSpec,
    *,
    cold: bool = True,
    pace: Pace = "burst",
) -> list[Entry]:
    """Make each baseline ready to be timed, if it can run the plan and its result agrees with ours.

    What was compared is what will be timed: the same graph, or the same calls; one run of them
    where C is in place. The session is one on a GPU and was opened with ``spec``. Raises
    DeviceFailed or DeviceHung.
    """
    if not names:
        return []
    witness = Witness(plan, session, spec)
    gpu, states = cast("CudaSession", session), [cold, *([False] if pace == "sustained" else [])]
    return [_entry(name, gpu, plan, witness, states) for name in names]


@dataclass(frozen=True)
class _Way:
    """One way to queue a sample, and what of it is compared.

    They are the same but where C is in place: a run adds to the D of that before it, so that of
    several only one is compared.
    """

    form: Form
    queue: Queue
    compared: Queue
    reason: str = ""  # why it cannot be a graph


def _entry(
    name: str, session: CudaSession, plan: Plan, witness: Witness, states: Sequence[bool]
) -> Entry:
    """A baseline by the first way that is right, for bursts and what comes after them.

    ``states``: whether the L2 is cold, in each of these.
    """
    try:
        baseline = BASELINES[name](session, plan)
    except DeviceHung:
        raise
    except (Inapplicable, DeviceFailed) as reason:  # such as a lack of memory for it
        return Entry(Rival(name, "n/a", str(reason)))
    accumulates = bool(plan.problem.columns.accumulates.any())
    ways = []
    for cold in dict.fromkeys(states):
        found = _right(_ways(session, baseline, cold, accumulates), session, baseline, witness)
        if isinstance(found, str):
            return Entry(Rival(name, "wrong", found))
        ways.append(found)
    last = ways[-1]
    rival = Rival(name, "ok", last.reason, form=last.form, manner=baseline.manner)
    return Entry(rival, _Timed(session, ways[0].queue, last.queue))


def _right(
    ways: Sequence[_Way], session: CudaSession, baseline: Baseline, witness: Witness
) -> _Way | str:
    """The first way whose result agrees with ours; if none does, in what the last one does not."""
    wrong = ""
    for way in ways:
        way.compared()  # so that what it writes is there, to be spoilt
        session.poison()
        baseline.poison()
        way.compared()
        baseline.deliver()
        if (disagreement := witness.disagreement(session, baseline.manner)) is None:
            return replace(way, reason=wrong or way.reason)
        wrong = f"as {'a graph' if way.form == 'graph' else 'calls'}, {disagreement}"
    return wrong


def _ways(session: CudaSession, baseline: Baseline, cold: bool, accumulates: bool) -> list[_Way]:
    """The ways to queue a sample, the one to be timed first; each will do if that is wrong.

    Cold it is the faster one: a graph keeps the host out of the time, but takes longer to begin
    than a single launch does. Warm it is the graph, as with us.
    """
    runs = 1 if cold else WARM_RUNS
    single = 1 if accumulates else runs

    def way(form: Form, queued: Callable[[int], Queue]) -> _Way:
        queue = queued(runs)
        return _Way(form, queue, queue if single == runs else queued(single))

    calls = way("calls", lambda runs: partial(repeat, baseline.queue, runs))
    try:
        graph = way("graph", baseline.graph)
    except NoGraph as error:
        return [replace(calls, reason=str(error))]
    if not cold:
        return [graph, calls]
    graph_s, calls_s = trial(session, [graph.queue, calls.queue])
    return [calls, graph] if calls_s < graph_s else [graph, calls]


class _Timed:
    """A baseline as something to sample."""

    def __init__(self, session: CudaSession, queue: Queue, many: Queue) -> None:
        """``queue`` queues a sample of a burst, ``many`` WARM_RUNS runs, for a sustained pace."""
        self._session, self._queue, self._many = session, queue, many

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        return self._session.time(count, cold=cold, queue=self._queue)

    def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
        return self._session.sustain(seconds, watch, self._many)
