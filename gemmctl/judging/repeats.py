"""Whether a session gives the same bits every time it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmctl.device.base import Session
from gemmctl.judging.verdict import Verdict


def repeated(session: Session, verdicts: Sequence[Verdict], runs: int) -> list[Verdict]:
    """Verdicts on a run that still lies in D, after more runs; ``runs`` counts the first.

    Each writes to a D of fresh poison. A group whose bits changed is wrong, whatever they are.
    """
    first = session.digests()
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
