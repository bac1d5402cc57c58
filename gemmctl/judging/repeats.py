"""Whether a session gives the same bits every time it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import Session
from gemmctl.judging.verdict import Verdict


def repeated(
    session: Session, verdicts: Sequence[Verdict], first: npt.NDArray[np.uint64], runs: int
) -> list[Verdict]:
    """Verdicts on a run whose D had the hashes ``first``, after more runs; ``runs`` counts it.

    Each writes to a D of fresh poison. A group whose bits changed is wrong, whatever they are.
    """
    judged = list(verdicts)
    for run in range(2, runs + 1):
        session.poison()
        session.run()
        for group in np.flatnonzero(session.digests() != first).tolist():
            found = judged[group]
            said = f"run {run} gave other bits than the first"
            message = f"group {group}: {said}" if found.ok else f"{found.message}; {said}"
            judged[group] = replace(found, ok=False, message=message)
    return judged
