"""What is left of a wrong group, for others to look at and to run again."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np

from gemmctl.device.base import Session
from gemmctl.errors import UsageError
from gemmctl.lists.problem import Group
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan


def dump(
    plan: Plan,
    session: Session,
    group: int,
    folder: str,
    spec: DataSpec,
    *,
    device: str,
    repeat: int,
) -> None:
    """Leave one group's operands and result in ``folder``, and a list that reproduces it.

    The list begins with the command for that: on ``device``, in ``repeat`` runs, launched as it was
    by the kernel that computed the group.

    Per matrix, m x k, n x k or m x n whatever its layout: ``a.npy`` has the values as float32,
    ``a_bits.npy`` the elements' bits, read from the device. C and the bias are left out where there
    is none. A C in place is made anew, so that the session's D is lost. Raises UsageError if a
    file cannot be written; none of them is left then, nor a folder that was made for them, nor if
    something else ends it.
    """
    found, layout = plan.problem.groups[group], plan.layout
    across = found.across
    matrices = [
        ("d", int(layout.d[group]), found.m, found.d_columns, found.ldd, found.d, across("d")),
        ("a", int(layout.a[group]), found.m, found.k, found.lda, found.a, across("a")),
        ("b", int(layout.b[group]), found.n, found.k, found.ldb, found.b, across("b")),
    ]
    if found.bias != "none":
        length = found.bias_length
        place = int(layout.bias[group]), 1, length, length
        matrices.append(("bias", *place, found.bias_type, False))
    if found.beta != 0:
        place = int(layout.c[group]), found.m, found.n, found.ldc
        matrices.append(("c", *place, found.c, across("c")))
    # A group's operands depend on its place in the problem: empty groups keep that place.
    before = f"      - {{m: 0, n: 0, k: 0, count: {group}}}\n" if group else ""
    names = [field.name for field in fields(Group) if field.name != "marks"]
    keys = ", ".join(f"{key}: {str(getattr(found, key)).lower()}" for key in names)
    name = json.dumps(f"{plan.problem.name} group {group} {spec.kind}", ensure_ascii=False)
    launch = next((launch for launch in plan.launches if group in launch.groups), None)
    kernel, cut = "", ""
    launched = "" if plan.launch == "grouped" else f" --launch {plan.launch}"
    if launch is not None:  # an empty group has none
        kernel = f" --kernel {launch.kernel.name}"
        cut = f"# Its launch was cut as {launch.choice} (groups: {len(launch.groups)}).\n"
    text = (
        f"# gemmctl verify --device {device}{kernel} --data {spec.kind} --seed {spec.seed} "
        f"--repeat {repeat}{launched} problem.yaml\n{cut}"
        f"gemmctl: 1\nproblems:\n  - name: {name}\n    groups:\n{before}      - {{{keys}}}\n"
    )
    path, written = Path(folder), list[Path]()
    made = [one for one in (path, *path.parents) if not one.exists()]

    def keep(name: str) -> Path:
        written.append(path / name)
        return written[-1]

    try:
        path.mkdir(parents=True, exist_ok=True)
        keep("problem.yaml").write_text(text, encoding="utf-8")
        for operand, offset, rows, cols, ld, element, turned in matrices:
            if operand == "c" and found.inplace:
                session.poison()
            dtype = dtypes.BY_NAME[element]
            runs = cols if turned else rows
            memory = session.read(offset, offset + runs * ld * dtype.size)
            bits = data.matrix(memory, 0, rows, cols, ld, dtype, turned)
            np.save(keep(f"{operand}_bits.npy"), bits)
            np.save(keep(f"{operand}.npy"), dtype.to_f32(bits))
    except BaseException as error:
        for file in written:
            file.unlink(missing_ok=True)
        for empty in made:
            with suppress(OSError):  # it is not there, or another has put something into it
                empty.rmdir()
        if not isinstance(error, OSError):
            raise
        # numpy says how many elements it wrote, and not why no more.
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from None
