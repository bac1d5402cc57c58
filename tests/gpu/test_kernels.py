"""The kernels on a Hopper GPU: right, repeatable, and never outside of D."""

from __future__ import annotations

import ctypes
import io
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from gemmctl.device.cuda import CudaDevice
from gemmctl.device.cuda.session import CudaSession
from gemmctl.device.cuda.tensormaps import encode_map
from gemmctl.judging import verify
from gemmctl.judging.product import products_of
from gemmctl.kernels import constants, cubins
from gemmctl.kernels.constants import (
    BIAS_NONE,
    BOX_ROWS,
    CONSTANT_MAPS,
    FINE_FROM,
    FINE_STEP,
    FINE_TO,
    FUSED_FINER_TO,
    FUSED_NARROW,
    FUSED_STEP,
    K_TILE,
    KIND_BIAS,
    MAP_BYTES,
    MAPS,
    NARROW_ROWS,
    RESIDUE_LEAD,
    RESIDUE_ROW_BYTES,
    RESIDUES,
    STAGED_FROM,
    STAGED_SLICES,
    TILE_ADDED,
    TILE_BIAS_SCALED,
    TILE_BOXED,
    TILE_C_IN_SUMS,
    TILE_FUSED,
    TILE_JOINED,
    TILE_LOADED_BY_TWO,
    TILE_PLUS,
    TILE_RELU,
    TILE_RESIDUES,
    WIDTH_STEP,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists import reading
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES, Problem
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.operands.digest import digest
from gemmctl.planning import fitting, packing, plan, tables, tail, tiles, tiling
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import BEGUN_K, Choice, seen
from support import cut_as, environment, make_problem, takes_all

KERNELS = cubins.manifest().kernels
ONE_OF_EACH = list({kernel.name: kernel for kernel in KERNELS}.values())
FUSING = [kernel for kernel in KERNELS if takes_all(kernel)]
# From which C joins sums of any width on the way, with a slice behind it.
STAGED_K = (STAGED_FROM + STAGED_SLICES + 3) * K_TILE


def takes(kernel: Kernel, more: str) -> bool:
    """Whether a group may have more: no gate where K lies across B."""
    return not ("gate" in more and kernel.b_layout == "row")


# Around every edge: tile widths, K slices, the ring's stages; empty groups; alpha, beta, C's types.
SHAPES = [
    (16, 64, 64), (1, 8, 8), (128, 128, 64), (256, 256, 512), (257, 255, 65), (7, 130, 72),
    (300, 500, 1000), (513, 257, 333), (1000, 136, 4096), (0, 128, 64), (17, 64, 0), (64, 0, 64),
    (33, 1000, 64), (240, 128, 192), (2048, 1024, 512), (5, 24, 16), (80, 96, 256), (144, 72, 320),
]  # fmt: skip


RCR = ("row", "col", "row")  # layouts of A, B and D


def head(operand: str, output: str, layouts: Sequence[str] = RCR) -> str:
    """How a list begins."""
    told = ", ".join(f"{x}_layout: {layout}" for x, layout in zip("abd", layouts, strict=True))
    return f"gemmctl: 1\ndefaults: {{a: {operand}, d: {output}, {told}}}\nproblems:\n"


def layouts_of(kernel: Kernel, d_layout: str = "row") -> tuple[str, str, str]:
    """Layouts of A, B and D in a list that a kernel can run."""
    _, _, a_layout, b_layout = kernel.multiplies
    if d_layout == "col":  # D^T = B^T A^T
        other = {"row": "col", "col": "row"}
        a_layout, b_layout = other[b_layout], other[a_layout]
    return a_layout, b_layout, d_layout


def head_of(kernel: Kernel) -> str:
    """How a list begins that a kernel can run."""
    return head(kernel.operand, kernel.output, layouts_of(kernel))


def columns_for(kernel: Kernel, n: int) -> int:
    """The next number of columns of D that a kernel takes, of every type."""
    return n if takes_all(kernel) else -(-n // 8) * 8


def awkward(operand: str, output: str, layouts: Sequence[str] = RCR, *, plain: bool = False) -> str:
    """A list with every group of SHAPES, in turn plain, scaled, and with C of each type.

    ``plain``: D is alpha A B everywhere, in whole 16-byte words.
    """
    step = 16 // dtypes.BY_NAME[output].size
    a_layout, b_layout, d_layout = layouts
    word_m, word_n = (step if plain and d_layout == layout else 1 for layout in ("col", "row"))
    groups = []
    for i, (m, n, k) in enumerate(
        (-(-m // word_m) * word_m, -(-n // word_n) * word_n, k) for m, n, k in SHAPES
    ):
        lda, ldb = (
            max(8, -(-inner // 8) * 8) + 8 * (i % 2)
            for inner in (m if a_layout == "col" else k, n if b_layout == "row" else k)
        )
        run = m if d_layout == "col" else n
        ldd = max(1, run) if i % 4 == 3 else max(step, -(-run // step) * step) + step * (i % 3)
        alpha, beta, c = (1, 0.5, -2)[i % 3], (0, 1, 0, -0.5)[i % 4], ("bf16", "f16", "f32")[i % 3]
        beta = 0 if plain else beta
        groups.append(
            f"{{m: {m}, n: {n}, k: {k}, lda: {lda}, ldb: {ldb}, ldd: {ldd}, ldc: {run + i + 1}, "
            f"alpha: {alpha}, beta: {beta}, c: {c}}}"
        )
    begin = head(operand, output, layouts)
    return begin + "  - name: awkward\n    groups:\n" + "".join(f"      - {g}\n" for g in groups)


def awkward_for(kernel: Kernel, d_layout: str = "row") -> str:
    """Such a list of what a kernel takes."""
    layouts = layouts_of(kernel, d_layout)
    return awkward(kernel.operand, kernel.output, layouts, plain=not takes_all(kernel))


def padded(kernel: Kernel, m: int, n: int, k: int, d_layout: str = "row", step: int = 8) -> str:
    """Leading dimensions of A and B in multiples of ``step``: whole 16-byte words at least."""
    a_layout, b_layout, _ = layouts_of(kernel, d_layout)
    inner = {"lda": m if a_layout == "col" else k, "ldb": n if b_layout == "row" else k}
    return ", ".join(
        f"{ld}: {max(step, -(-extent // step) * step)}" for ld, extent in inner.items()
    )


def planned(text: str, *kernels: Kernel) -> Plan:
    (made,) = reading.load(["-"], io.StringIO(text))
    return planned_problem(made, *kernels)


def planned_as(text: str, kernel: Kernel, width: int) -> Plan:
    """Cut for one kernel, with tiles of up to so many rows."""
    (some,) = reading.load(["-"], io.StringIO(text))
    (made,) = plan.make([some], [kernel], chosen={some.name: [Choice(kernel.name, width)]})
    return made


def planned_problem(made: Problem, *kernels: Kernel) -> Plan:
    (found,) = plan.make([made], kernels or KERNELS)
    return found


@contextmanager
def ran(device: CudaDevice, made: Plan, spec: DataSpec) -> Iterator[CudaSession]:
    with device.open(made, spec) as session:
        session.run()
        yield session


def wrong(made: Plan, session: CudaSession, spec: DataSpec) -> list[str]:
    verdicts = verify.verify(made, session, spec)
    return [f"group {v.group}: {v.message}" for v in verdicts if not v.ok]


def repeat_alike(session: CudaSession, made: Plan, times: int) -> None:
    """Runs that all give the D that is there, fences included, to the last bit."""
    begin, end = made.layout.d_begin, made.layout.d_end
    first = session.read(begin, end)
    for _ in range(times):
        session.poison()
        session.run()
        assert np.array_equal(session.read(begin, end), first)


def right_and_alike(device: CudaDevice, made: Plan, spec: DataSpec, times: int) -> None:
    """Nothing is wrong with a first run, and so many more give the same bits."""
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []
        repeat_alike(session, made, times)


def named(kernel: Kernel) -> str:
    layouts = f"{kernel.a_layout[0]}{kernel.b_layout[0]}{kernel.d_layout[0]}"
    return f"{kernel.name}-{kernel.operand}-{kernel.output}-{layouts}"


@pytest.fixture(params=KERNELS, ids=named)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return request.param


# Kernels that compute more than alpha A B, too, and D with rows of any length.
every_fusing_kernel = pytest.mark.parametrize("kernel", FUSING, ids=named)


@pytest.mark.parametrize("kind", ["int", "normal"])
def test_every_kernel_is_right_on_awkward_shapes(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    made, spec = planned(awkward_for(kernel), kernel), DataSpec(kind, 11)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("kind", ["int", "normal"])
def test_every_kernel_is_right_on_a_d_by_columns(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    made, spec = planned(awkward_for(kernel, "col"), kernel), DataSpec(kind, 37)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


def widths_of(kernel: Kernel, step: int, *, finer: bool) -> set[int]:
    """A kernel's widths in such steps and, if ``finer``, those it has in steps of FINE_STEP."""
    widths = set(range(step, kernel.max_width + 1, step))
    if finer and kernel.finer:
        widths.update(range(FINE_FROM, min(FINE_TO, kernel.max_width), FINE_STEP))
    return widths


def at_widths(kernel: Kernel, widths: Collection[int], more: str = "", k: int = 136) -> Plan:
    """Groups as high as each width and, but for the last rows, twice as high."""
    groups = []
    for width in sorted(widths):
        for rows in (width, 2 * width - columns_for(kernel, 3)):
            m, n = (136, columns_for(kernel, rows)) if kernel.d_across else (rows, 136)
            groups.append(f"{{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}{more}}}")
    text = head_of(kernel) + "  - name: widths\n    groups:\n"
    text += "".join(f"      - {group}\n" for group in groups)
    made = planned_as(text, kernel, kernel.max_width)
    assert set(widths) == set(made.launches[0].tiles["width"].tolist())
    return made


@pytest.mark.parametrize("kind", ["int", "normal"])
def test_every_kernel_is_right_at_every_width_that_it_has_code_for(
    device: CudaDevice, kernel: Kernel, kind: data.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "FINE_BEGIN", -np.inf)  # finer widths, worth it or not
    widths = widths_of(kernel, WIDTH_STEP, finer=True)
    made, spec = at_widths(kernel, widths), DataSpec(kind, 12)
    right_and_alike(device, made, spec, 10)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("d_layout", ["row", "col"])
@pytest.mark.parametrize("k", [8, 64, 200, 512])
@pytest.mark.parametrize("kernel", [of for of in KERNELS if of.shuffles], ids=named)
def test_rows_come_shuffled_at_every_width_that_has_whole_runs_of_them(
    device: CudaDevice,
    kernel: Kernel,
    k: int,
    d_layout: str,
    kind: data.Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As high as each width, and higher: with a last tile that D has only some runs of."""
    monkeypatch.setattr(tiling, "SHUFFLED_RUNS", 1)  # narrow ones, too, worth it or not
    widths = range(kernel.run * kernel.cluster, kernel.max_width + 1, kernel.run * kernel.cluster)
    highs = [
        *widths,
        *(width + kernel.max_width for width in widths),
        2 * kernel.max_width - kernel.run,
    ]
    text = head(kernel.operand, kernel.output, layouts_of(kernel, d_layout))
    text += "  - name: shuffled\n    groups:\n"
    for high in highs:
        m, n = (133, high) if d_layout == "row" else (high, 133)
        lds = padded(kernel, m, n, k, d_layout, K_TILE)
        text += f"      - {{m: {m}, n: {n}, k: {k}, {lds}, alpha: -1.5}}\n"
    made = planned_as(text, kernel, kernel.max_width)
    (launch,), spec = made.launches, DataSpec(kind, 14)
    assert set(widths) <= set(launch.widths[launch.shuffled].tolist())
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("high", [40, 192, 256])
@pytest.mark.parametrize("kernel", [of for of in KERNELS if of.takes_turns], ids=named)
def test_however_many_slices_are_multiplied_by_turns_the_bits_are_the_same(
    device: CudaDevice, kernel: Kernel, high: int
) -> None:
    """Tiles of fewer and of more slices of K than the ring has stages, in turns of any length."""
    text = head_of(kernel) + "  - name: turns\n    groups:\n"
    for slices in range(1, kernel.most_stages + 2):
        k = slices * K_TILE - 8
        m, n = (1000, high) if kernel.d_across else (high, 1000)
        more = ", beta: -0.5" if takes_all(kernel) and slices % 2 else ""
        text += f"      - {{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}{more}}}\n"
    made = planned_as(text, kernel, high)
    (launch,), spec = made.launches, DataSpec("normal", 41)
    numbers, found = np.arange(len(launch.tiles)), []
    k_tiles, narrow = launch.tiles["k_tiles"], launch.tiles["width"] <= NARROW_ROWS
    for last in (launch.tiles["in_turn"], 1, launch.stages, 1 + numbers % launch.stages):
        those = launch.tiles.copy()
        taken = np.minimum(last, np.minimum(k_tiles, launch.stages))
        those["in_turn"] = np.where(narrow & (taken < k_tiles), 0, taken)
        cut = replace(made, launches=(replace(launch, tiles=those),))
        with ran(device, cut, spec) as session:
            assert wrong(cut, session, spec) == []
            repeat_alike(session, cut, 25)
            found.append(session.read(made.layout.d_begin, made.layout.d_end))
    assert all(np.array_equal(one, found[0]) for one in found)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("more", ["", ", activation: relu, alpha: -1.5", ", ldd: 139"])
@pytest.mark.parametrize("along", ["n", "m"])
@pytest.mark.parametrize("kernel", [of for of in KERNELS if of.joins], ids=named)
def test_a_bias_joins_sums_of_every_width(
    device: CudaDevice,
    kernel: Kernel,
    along: str,
    more: str,
    kind: data.Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiling, "FINE_BEGIN", -np.inf)  # finer widths, worth it or not
    step = FUSED_STEP if kernel.a_across and "ldd" in more else WIDTH_STEP
    widths = widths_of(kernel, step, finer="ldd" not in more)
    bias = f", bias: {along}, bias_type: {kernel.operand}{more}"
    made, spec = at_widths(kernel, widths, bias), DataSpec(kind, 12)
    assert (made.launches[0].tiles["flags"] & TILE_JOINED).all()
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("more", ["", ", activation: relu", ", bias: m, bias_type: f32, ldd: 139"])
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.begins or of.stages_c], ids=named)
def test_sums_take_c_in_at_every_width_that_has_code_for_it(
    device: CudaDevice, kernel: Kernel, more: str, kind: data.Kind
) -> None:
    if kernel.begins_plain and "ldd" in more:
        more = ", bias: n, bias_type: f32"
    step = WIDTH_STEP if kernel.begins_finer else FUSED_STEP
    widths = {FUSED_NARROW, *range(step, kernel.max_width + 1, step)}
    of_c = f", beta: 1, c: {kernel.output}, ldc: 144{more}"
    k = BEGUN_K if kernel.begins else STAGED_K
    made, spec = at_widths(kernel, widths, of_c, k), DataSpec(kind, 12)
    assert (made.launches[0].tiles["flags"] & TILE_C_IN_SUMS).all()
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize(
    "more",
    [
        "bias_type: bf16",
        "bias_type: f16, alpha: -1.5, activation: relu",
        "bias_type: f32, ldd: 139",
        "bias_type: bf16, alpha: 0.7, activation: silu",
    ],
)
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.scales_bias], ids=named)
def test_a_bias_comes_with_alpha_at_every_width(
    device: CudaDevice, kernel: Kernel, more: str, kind: data.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "FINE_BEGIN", -np.inf)  # finer widths, worth it or not
    few = "ldd" in more or "silu" in more
    widths = widths_of(kernel, FUSED_STEP if few else WIDTH_STEP, finer=not few)
    made, spec = at_widths(kernel, widths, f", bias: n, {more}"), DataSpec(kind, 12)
    assert (made.launches[0].tiles["flags"] & TILE_BIAS_SCALED).all()
    right_and_alike(device, made, spec, 100)


# At widths between multiples of FUSED_STEP, where a launch has one alone.
FUSED_FINER = [
    (of, more)
    for of in FUSING
    for more in (
        "activation: gelu, bias: m, bias_type: f32",
        "activation: gelu_tanh, alpha: 0.5",
        "activation: silu, bias: n, bias_type: f16, ldd: 139",
        "gate: halves, activation: silu",
        "gate: pairs, activation: relu, beta: 1, c: f32",
        "beta: -1, c: f32, ldc: 137",
        "beta: 1, c: bf16, ldc: 137, c_offset: 1",
        "bias: m, bias_type: bf16, ldd: 137",
    )
    if of.fuses_finer and takes(of, more)
]


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("width", range(FUSED_STEP + WIDTH_STEP, FUSED_FINER_TO, WIDTH_STEP))
@pytest.mark.parametrize(
    ("kernel", "more"), FUSED_FINER, ids=[f"{named(of)}-{more}" for of, more in FUSED_FINER]
)
def test_what_is_fused_is_right_at_finer_widths_where_all_tiles_have_the_same(
    device: CudaDevice,
    kernel: Kernel,
    width: int,
    more: str,
    kind: data.Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiling, "FUSED_FINER_SHARE", np.inf)  # however few tiles there are
    m, k = 3 * width - 5, STAGED_K
    group = f"{{m: {m}, n: 136, k: {k}, {padded(kernel, m, 136, k)}, {more}}}"
    text = f"{head_of(kernel)}  - name: finer\n    groups:\n      - {group}\n"
    made, spec = planned_as(text, kernel, width), DataSpec(kind, 12)
    assert set(made.launches[0].tiles["width"].tolist()) == {width}
    right_and_alike(device, made, spec, 100)


# Of a type that joins no sums, along n of kernels in which it does not come with alpha either.
BIASED_BEHIND = [
    (of, more)
    for of in FUSING
    for more in (
        "bias: n, bias_type: f32, alpha: 2",
        "bias: m, bias_type: f32, alpha: 2",
        "bias: n, bias_type: f32, alpha: -1, activation: relu, ldd: 137",
        "bias: m, bias_type: f32, alpha: -1, activation: relu, ldd: 137",
    )
    if not (of.scales_bias and "bias: n" in more)
]


@pytest.mark.parametrize(
    ("kernel", "more"), BIASED_BEHIND, ids=[f"{named(of)}-{more}" for of, more in BIASED_BEHIND]
)
def test_a_bias_behind_the_sums_is_right_at_every_width_that_it_has_code_for(
    device: CudaDevice, kernel: Kernel, more: str
) -> None:
    step = WIDTH_STEP if kernel.light_finer else FUSED_STEP
    widths = range(step, kernel.max_width + 1, step)
    made, spec = at_widths(kernel, widths, f", {more}"), DataSpec("int", 12)
    assert (made.launches[0].tiles["flags"] & TILE_PLUS).all()
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kind", ["int", "normal"])
def test_every_kernel_is_right_where_the_last_columns_of_tiles_are_narrower(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    """Half of a group's columns, all, a quarter or a third."""
    made, spec = planned(awkward_for(kernel), kernel), DataSpec(kind, 41)
    groups, width = made.launches[0].groups, kernel.max_width
    wide, narrow = (
        tiling.grid(made.exchanged, groups, kernel, widest, tiling.H200)
        for widest in (width, max(width // 2, kernel.box_step))
    )
    joined = tail.joined(wide, narrow, wide.wide // np.resize([2, 1, 4, 3], len(groups)))
    assert len(joined.groups) > len(groups)
    launch = tiles.cut(made.exchanged, joined, Choice(kernel.name, width))
    made = replace(made, launches=(launch,))
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("high", [32, 64, 128, 192, 256])
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.stages_c], ids=named)
def test_c_joins_sums_on_the_way_beside_others_and_they_are_the_same_every_time(
    device: CudaDevice, kernel: Kernel, high: int, kind: data.Kind
) -> None:
    """Of one slice behind C and of many, apart and in place, last tiles of few rows, and others."""
    other = "f32" if kernel.output == "bf16" else "bf16"
    of_c = f"c: {kernel.output}, ldc: 536"
    groups = ", ".join(
        f"{{m: {m}, n: 520, k: {k}, {padded(kernel, m, 520, k)}, {more}}}"
        for m, k in (
            (high, 520),
            (high - 9, 640),
            (high + 20, 700),
            (high - 17, 768),
            (high + 64, 1000),
            (2 * high - 3, 2200),
            (2 * high + 1, 5000),
        )
        for more in (
            f"beta: 1, {of_c}",
            "beta: 1, inplace: true",
            f"beta: -0.3, {of_c}, activation: relu",
            f"beta: 2, {of_c}, bias: n, bias_type: f32",
            f"beta: 1, {of_c}, bias: m, activation: silu",
            f"beta: 1, {of_c}, ldd: 521",
            f"beta: 1, alpha: 0.5, {of_c}",
            f"beta: 1, c: {other}",
            "beta: 0",
        )
    )
    made = planned_as(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel, high)
    joins = made.launches[0].tiles["flags"] & TILE_C_IN_SUMS > 0
    assert 0.5 < joins.mean() < 1
    spec = DataSpec(kind, 39)
    right_and_alike(device, made, spec, 100)


# What has as many widths as alpha A B has, of kernels in which a group's tiles may have two.
OF_TWO_HEIGHTS = [
    (of, more)
    for of in KERNELS
    if of.pingpong and not of.a_across
    for more in ("", ", beta: -2", ", bias: n", ", bias: m, bias_type: f32", ", ldd: 137")
    if not more or (takes_all(of) and (of.begins or "beta" not in more))
]


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize(
    ("kernel", "more"), OF_TWO_HEIGHTS, ids=[f"{named(of)}{more}" for of, more in OF_TWO_HEIGHTS]
)
def test_a_group_of_tiles_of_two_heights_is_right(
    device: CudaDevice,
    kernel: Kernel,
    more: str,
    kind: data.Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of which equal tiles are 16 to 48 too many, some in steps of eight."""
    monkeypatch.setattr(tiles, "LOWER_WAVES", 0)  # however few there are
    groups = []
    for high, less in ((2, 24), (3, 40), (5, 56)):
        rows = columns_for(kernel, high * kernel.max_width - less)
        m, n = (136, rows) if kernel.d_across else (rows, 136)
        groups.append(f"{{m: {m}, n: {n}, k: 520, {padded(kernel, m, n, 520)}{more}}}")
    text = f"{head_of(kernel)}  - {{name: x, groups: [{', '.join(groups)}]}}\n"
    made = planned_as(text, kernel, kernel.max_width)
    launch, spec = made.launches[0], DataSpec(kind, 43)
    assert (launch.tiles["width"] < launch.widths[launch.tiles["group"]]).any()
    right_and_alike(device, made, spec, 100)


ENDS = ["", ", bias: n, activation: silu", ", gate: halves"]


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        pytest.param(of, more, id=f"{named(of)}{more}")
        for of in KERNELS
        for more in (ENDS if takes_all(of) else ENDS[:1])
        if takes(of, more) and not of.b_unaligned
    ],
)
def test_tiles_that_overlap_at_the_ends_of_groups_are_right_and_the_same_every_time(
    device: CudaDevice,
    kernel: Kernel,
    more: str,
    kind: data.Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiles, "FULL_WAVE", 0)  # however few there are
    rows, step = 2 * 64 + 24, kernel.columns_per_tile
    shapes = [(rows, 2 * step + 80), (rows + 32, 3 * step - 16), (64, step), (rows, 64)]
    shapes.append((64, step + 18))  # which stay where tiles have to begin at whole words
    turned = [(n, m) if kernel.d_across else (m, n) for m, n in shapes]
    groups = [f"{{m: {m}, n: {n}, k: 520, {padded(kernel, m, n, 520)}{more}}}" for m, n in turned]
    text = f"{head_of(kernel)}  - {{name: x, groups: [{', '.join(groups)}]}}\n"
    made = planned_as(text, kernel, 64)
    (launch,), spec = made.launches, DataSpec(kind, 47)
    assert launch.waves <= 1
    assert (launch.tiles["n0"] % step > 0).any()
    right_and_alike(device, made, spec, 100)


BY_TWO = [*ENDS, ", beta: -0.5", ", beta: 1, c: f32", ", beta: 1, ldc: 657"]
BY_TWO += [", beta: 1, inplace: true"]


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize(
    ("kernel", "width", "more"),
    [
        pytest.param(of, width, more, id=f"{named(of)}-{width}-{more}")
        for of in KERNELS
        for width in (16, 48, 64, 80, 96)
        if of.loaders > 1 and width <= tiling.BY_TWO_ROWS[of.k_parts]
        for more in (BY_TWO if takes_all(of) else BY_TWO[:1])
        if takes(of, more)
    ],
)
def test_two_threads_load_by_turns(
    device: CudaDevice, kernel: Kernel, width: int, more: str, kind: data.Kind
) -> None:
    """An odd number of slices, and stages of C beside them, in rings of several lengths."""
    m, n = (656, 4 * width - 8) if kernel.d_across else (4 * width - 5, 656)
    group = f"m: {m}, n: {n}, k: 1801, {padded(kernel, m, n, 1801)}{more}"
    made = planned_as(f"{head_of(kernel)}  - {{name: x, groups: [{{{group}}}]}}\n", kernel, width)
    (launch,) = made.launches
    assert (launch.tiles["flags"] & TILE_LOADED_BY_TWO > 0).all()
    right_and_alike(device, made, DataSpec(kind, 53), 100)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("sms", [40, 0], ids=["alone", "later all"])
@pytest.mark.parametrize(
    "more", ["", ", beta: 1", ", d: f32, beta: 1, inplace: true", ", b_layout: row"]
)
def test_groups_of_few_rows_beside_those_of_many_are_right(
    device: CudaDevice, more: str, sms: int, kind: data.Kind
) -> None:
    """More tiles of either than they have clusters, and a group of no rows."""
    groups = (
        f"{{m: 1030, n: 4104, k: 4104{more}}}, {{m: 0, n: 264, k: 4104{more}}}",
        f"{{m: 17, n: 2056, k: 4104, count: 12{more}}}, {{m: 128, n: 264, k: 8200{more}}}",
    )
    text = f"{{gemmctl: 1, problems: [{{name: x, groups: [{', '.join(groups)}]}}]}}"
    (some,) = reading.load(["-"], io.StringIO(text))
    name = "128x256-c2"
    chosen = {some.name: [Choice(name, 256, sms=92), Choice(name, 128, sms=sms)]}
    (made,) = plan.make([some], KERNELS, device.machine, chosen=chosen)
    assert made.apart and made.streams == 2
    spec = DataSpec(kind, 45)
    right_and_alike(device, made, spec, 100)


# Rows of C and D in whole words of four elements, in words of other lengths, and at odd places:
# columns, and how much longer the rows of D and C are.
ROWS_OF_C = [
    (192, 0, 0),
    (200, 4, 8),
    (68, 8, 4),
    (136, 0, 2),
    (130, 6, 6),
    (257, 0, 0),
    (96, 1, 0),
    (96, 0, 1),
]


@every_fusing_kernel
@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("c", ["bf16", "f16", "f32"])
def test_c_of_every_type_is_added_wherever_its_rows_lie(
    device: CudaDevice, kernel: Kernel, c: str, kind: data.Kind
) -> None:
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, ldd: {n + d}, ldc: {n + further}, "
        f"alpha: {(1, 0.5)[i % 2]}, beta: {(1, -2)[m % 2]}, c: {c}}}"
        for i, (n, d, further) in enumerate(ROWS_OF_C)
        for m, k in ((1, 64), (83, 8), (176, 136), (250, 0), (513, 320))
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    spec = DataSpec(kind, 19)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


# Elements of A, B, C and D behind a boundary of 256 bytes: on words of 2, 4 and 8 bytes and none.
OFFSETS = [(1, 0, 0, 0), (0, 2, 0, 1), (3, 5, 1, 0), (0, 0, 7, 4), (4, 7, 2, 3), (127, 6, 125, 126)]


def begun(kernel: Kernel, more: str = "") -> str:
    """A list whose operands begin at OFFSETS, with rows that all begin alike or do not."""
    step = 1 if takes_all(kernel) else 8  # of D
    shapes = [(1, 1, 1), (1, 264, 72), (40, 1, 64), (83, 200, 136), (300, 257, 1001)]
    groups = "".join(
        f"      - {{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, a_offset: {a}, "
        f"b_offset: {b}, d_offset: {d * step % 128}{'' if 'true' in more else f', c_offset: {c}'}"
        f"{more}}}\n"
        for m, n, k in ((m, columns_for(kernel, n), k) for m, n, k in shapes)
        for a, b, c, d in OFFSETS
    )
    return f"{head_of(kernel)}  - name: begun\n    groups:\n{groups}"


@pytest.mark.parametrize("kind", data.KINDS)
def test_every_kernel_is_right_wherever_operands_begin(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    made, spec = planned(begun(kernel), kernel), DataSpec(kind, 71)
    assert made.packing.bytes
    right_and_alike(device, made, spec, 100)


@every_fusing_kernel
@pytest.mark.parametrize(
    "more",
    [
        *(f", beta: -0.5, c: {c}" for c in dtypes.BY_NAME),
        ", beta: 1, inplace: true",
        ", beta: 1, bias: n, activation: silu",
        ", bias: n",
        ", bias: m, activation: relu",
    ],
)
def test_what_is_fused_is_right_wherever_c_and_d_begin(
    device: CudaDevice, kernel: Kernel, more: str
) -> None:
    made, spec = planned(begun(kernel, more), kernel), DataSpec("normal", 73)
    right_and_alike(device, made, spec, 10)


@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("gate", ["halves", "pairs"])
def test_a_gate_is_right_wherever_operands_begin(device: CudaDevice, gate: str, beta: int) -> None:
    groups = ", ".join(
        f"{{m: 83, n: {n}, k: 72, gate: {gate}, beta: {beta}, a_offset: {a}, b_offset: {b}, "
        f"c_offset: {c}, d_offset: {d}}}"
        for n in (128, 130, 528)
        for a, b, c, d in OFFSETS
    )
    made = planned(f"{head('bf16', 'bf16')}  - {{name: x, groups: [{groups}]}}\n")
    spec = DataSpec("normal", 79)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@every_fusing_kernel
def test_in_place_a_last_row_has_the_same_bits_every_time_whatever_lies_behind_it(
    device: CudaDevice, kernel: Kernel
) -> None:
    # Fewer rows than residues of C, beside tiles that store their columns meanwhile. silu rounds
    # two rows together, of which one may not be there.
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: 100, {padded(kernel, m, n, 100)}, beta: 1, inplace: true, "
        "activation: silu, count: 20}"
        for m in range(1, 8)
        for n in (130, 195)
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    assert (made.launches[0].tiles["flags"] & TILE_RESIDUES > 0).all()
    with ran(device, made, DataSpec("normal", 31)) as session:
        repeat_alike(session, made, 200)


# Around the edges of a warpgroup's 64 columns, of boxes, and of tiles, with odd and even rows; many
# of each, so that a CTA has tiles that are added and others in turn; the last cannot be.
ADDED_SHAPES = [
    (1, 64, 1024), (2, 32, 1024), (17, 64, 1024), (18, 64, 1024), (83, 64, 1088), (84, 96, 1088),
    (191, 256, 1417), (192, 256, 1417), (250, 224, 1024), (257, 160, 2048), (258, 160, 2048),
    (514, 320, 1100), (64, 96, 16384),
    (130, 132, 8), (257, 260, 64), (96, 512, 328), (1, 4, 1024), (250, 196, 1024),
]  # fmt: skip


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.output == "f32"], ids=named)
def test_sums_of_32_bits_are_added_to_d_beside_others_and_the_same_every_time(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: {depth}, {padded(kernel, m, n, depth)}, ldd: {-(-n // 4) * 4 + 4}, "
        f"alpha: {(1, -0.5)[i % 2]}, count: {1 if k > 4096 else 12}, {behind}}}"
        for i, (m, n, k) in enumerate(ADDED_SHAPES)
        for depth, behind in (
            (k, "beta: 1, inplace: true"),
            (72, "beta: 0"),
            (72, "beta: 1, inplace: true, bias: n"),
        )
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    added = made.launches[0].tiles["flags"] & TILE_ADDED > 0
    assert added.any()
    assert not added.all()
    spec = DataSpec(kind, 29)
    right_and_alike(device, made, spec, 100)


# Around the edges of boxes of 16 rows by 64 columns and of tiles; the last cannot leave so.
BOXED_SHAPES = [
    (2, 32, 384), (18, 64, 400), (84, 96, 512), (192, 256, 1417), (250, 224, 1024),
    (258, 160, 1536), (514, 320, 700), (64, 96, 1000), (1, 4, 384), (83, 64, 512), (250, 196, 1024),
]  # fmt: skip


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.boxes], ids=named)
def test_sums_of_32_bits_leave_by_tma_beside_others_and_are_the_same_every_time(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, kernel: Kernel, kind: data.Kind
) -> None:
    monkeypatch.setattr(tiling, "BOXED_TILES", 1)  # small groups, too
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: {depth}, {padded(kernel, m, n, depth)}, ldd: {-(-n // 4) * 4 + 4}, "
        f"alpha: {(1, -0.5)[i % 2]}, d_offset: {4 * (i % 3)}, count: 12, {behind}}}"
        for i, (m, n, k) in enumerate(BOXED_SHAPES)
        for depth, behind in (
            (k, "beta: 0"),
            (72, "beta: 0"),
            (k, "activation: relu"),
            (k, "beta: 1, inplace: true"),
        )
    )
    empty = "{m: 0, n: 64, k: 512}, {m: 64, n: 64, k: 512, alpha: 0}"
    text = f"{head_of(kernel)}  - {{name: x, groups: [{empty}, {groups}]}}\n"
    made = planned_as(text, kernel, kernel.max_width)
    flags = made.launches[0].tiles["flags"]
    boxed, added = flags & TILE_BOXED > 0, flags & TILE_ADDED > 0
    assert boxed.any()
    assert added.any()
    assert not (boxed | added).all()
    right_and_alike(device, made, DataSpec(kind, 33), 100)


# Around the widths that have code for it, and with sums of one slice, of as many as the ring has
# stages, and of many more.
BEGUN_SHAPES = [
    (1, 8, 64), (17, 64, 8), (33, 72, 320), (65, 256, 200), (97, 264, 768), (129, 136, 704),
    (160, 520, 64), (192, 256, 1000), (193, 128, 640), (400, 320, 2048), (64, 64, 16384),
]  # fmt: skip


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.begins], ids=named)
def test_sums_begin_with_c_beside_others_and_are_the_same_every_time(
    device: CudaDevice, kernel: Kernel, kind: data.Kind, *, inplace: bool
) -> None:
    other = "f32" if kernel.output == "bf16" else "bf16"
    of_c = "inplace: true" if inplace else f"c: {kernel.output}, ldc: 528"
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, ldd: 544, {more}, "
        f"count: {1 if k > 4096 else 3}}}"
        for m, n, k in BEGUN_SHAPES
        for more in (
            f"beta: 1, {of_c}",
            f"beta: -0.3, {of_c}",
            f"beta: 1, {of_c}, activation: relu",
            f"beta: 2, {of_c}, bias: n, bias_type: {kernel.operand}",
            f"beta: 1, {of_c}, bias: n, activation: silu",
            "activation: relu",
            f"bias: n, bias_type: {kernel.operand}",
            f"beta: 1, {of_c}, bias: m",
            f"beta: 1, {of_c}, bias: m, bias_type: {kernel.operand}",
            "alpha: -2, bias: m, bias_type: f32, activation: relu",
            "bias: n, bias_type: f32",
            f"beta: 1, alpha: 0.5, {of_c}",
            f"beta: 1, c: {other}, activation: relu",
            "beta: 0",
        )
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    tiles = made.launches[0].tiles
    plain = kernel.begins_plain  # which has C behind the sums of more groups
    for flag, share in (
        (TILE_C_IN_SUMS, 0.25 if plain else 0.4),
        (TILE_RELU, 0.1),
        (TILE_BIAS_SCALED if plain else TILE_JOINED, 0.1),
    ):
        assert share < (tiles["flags"] & flag > 0).mean() < 1
    behind = (tiles["kinds"] >> KIND_BIAS & 3 != BIAS_NONE) & (tiles["flags"] & TILE_FUSED == 0)
    assert (0.05 if plain else 0.1) < behind.mean() < 1
    spec = DataSpec(kind, 37)
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("kernel", [of for of in FUSING if of.begins], ids=named)
def test_sums_of_any_number_of_slices_take_c_in(
    device: CudaDevice, kernel: Kernel, kind: data.Kind
) -> None:
    """Fewer slices of K than come before C, as many and more, and more than the ring has stages."""
    groups = ", ".join(
        f"{{m: 150, n: 264, k: {k}, {padded(kernel, 150, 264, k)}, beta: -0.5, inplace: true}}"
        for k in range(K_TILE - 8, (kernel.most_stages + 3) * K_TILE, K_TILE)
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    assert (made.launches[0].tiles["flags"] & TILE_C_IN_SUMS).all()
    right_and_alike(device, made, DataSpec(kind, 57), 100)


# Widths and heights around the edges of a block of 64 columns, of the eights that a gate takes, and
# of staged chunks; D's rows in whole words, and not.
FUSED_SHAPES = [
    (1, 2, 8), (17, 64, 64), (47, 66, 72), (49, 128, 8), (83, 130, 136), (97, 136, 0),
    (176, 258, 200), (193, 384, 64), (250, 520, 320),
]  # fmt: skip


def fused(kernel: Kernel, activation: str, gate: str, spread: int) -> str:
    """A list with every bias, with and without C, on every group of FUSED_SHAPES."""
    groups = []
    for i, (m, n, k) in enumerate(FUSED_SHAPES):
        for j, bias in enumerate(BIASES):
            # alpha and k of 0, C of each type or none, a bias of D's type or of f32, packed rows
            alpha, beta = (1, 0.5, -1)[(i + j) % 3], (0, 1, -0.5)[(i + j + spread) % 3]
            c, wide = ("bf16", "f16", "f32")[i % 3], ", bias_type: f32" * ((i + spread) % 2)
            columns = n if gate == "none" else n // 2
            groups.append(
                f"{{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, alpha: {alpha}, "
                f"beta: {beta}, c: {c}, bias: {bias}"
                f"{wide if j else ''}, activation: {activation}, gate: {gate}, "
                f"ldd: {columns + spread * (i % 3)}, ldc: {n + spread * (j % 3)}}}"
            )
    return (
        head_of(kernel)
        + "  - name: fused\n    groups:\n"
        + "".join(f"      - {g}\n" for g in groups)
    )


def takes_gates(kernel: Kernel) -> bool:
    """Whether a kernel computes gates, too, for which columns of B have to lie one by one."""
    problem = make_problem("m: 8, n: 8, k: 8, gate: pairs")
    return kernel.multiplies[3] == "col" and fitting.takes(kernel, problem, np.arange(1))


GATED = [(of, gate) for of in FUSING for gate in GATES if gate == "none" or takes_gates(of)]
every_gate = pytest.mark.parametrize(
    ("kernel", "gate"), GATED, ids=[f"{named(of)}-{gate}" for of, gate in GATED]
)


@pytest.mark.parametrize("kind", data.KINDS)
@every_gate
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_bias_activation_and_gate_is_right_beside_every_c(
    device: CudaDevice, kernel: Kernel, activation: str, gate: str, kind: data.Kind
) -> None:
    for spread in (0, 1):
        made, spec = planned(fused(kernel, activation, gate, spread), kernel), DataSpec(kind, 23)
        with ran(device, made, spec) as session:
            assert wrong(made, session, spec) == []


@every_gate
def test_what_is_fused_behind_split_sums_is_right(
    device: CudaDevice, kernel: Kernel, gate: str
) -> None:
    groups = ", ".join(
        f"{{m: {m}, n: 264, k: 2112, {padded(kernel, m, 264, 2112)}, bias: {bias}, "
        f"activation: silu, gate: {gate}, beta: {beta}}}"
        for m, bias, beta in ((7, "n", 0), (150, "m", 1), (300, "none", 0))
    )
    whole = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    choice = Choice(kernel.name, kernel.max_width, 4)
    launch = cut_as(whole.problem, np.arange(3), kernel, choice)
    assert launch.slots > 0
    spec = DataSpec("normal", 29)
    made = replace(whole, launches=(launch,))
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@every_fusing_kernel
def test_what_is_fused_gives_the_same_bits_a_hundred_times(
    device: CudaDevice, kernel: Kernel
) -> None:
    gate = "halves" if takes_gates(kernel) else "none"
    made = planned(fused(kernel, "silu", gate, 0), kernel)
    with ran(device, made, DataSpec("normal", 31)) as session:
        repeat_alike(session, made, 100)


def test_a_hundred_repeats_give_the_same_bits(device: CudaDevice, kernel: Kernel) -> None:
    made = planned(awkward_for(kernel), kernel)
    with ran(device, made, DataSpec("normal", 3)) as session:
        repeat_alike(session, made, 100)


def test_turns_pass_between_tiles_whose_k_fits_into_the_ring_and_others(
    device: CudaDevice, kernel: Kernel
) -> None:
    """About ten tiles for each SM; rings have four to eleven stages of 64."""
    with_c = takes_all(kernel)
    groups = [
        f"{{m: {40 + i % 50}, n: 256, k: {k}, {padded(kernel, 256, 256, k)}, "
        f"beta: {i % 3 // 2 if with_c else 0}}}"
        for i, k in enumerate([0, 64, 256, 320, 128, 704, 320] * 200)
    ]
    text = f"{head_of(kernel)}  - {{name: x, groups: [{', '.join(groups)}]}}\n"
    made, spec = planned(text, kernel), DataSpec("int", 5)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


def test_a_group_has_the_same_bits_alone_and_in_a_crowd(device: CudaDevice, kernel: Kernel) -> None:
    group = f"{{m: 250, n: 200, k: 712, {padded(kernel, 256, 200, 712)}}}"
    text = head_of(kernel) + "  - {name: x, groups: [%s]}\n"
    alone = planned(text % group, kernel)
    crowd = planned(text % ", ".join([group, *[group.replace("m: 250", "m: 256")] * 40]), kernel)
    bits = []
    for made in (alone, crowd):
        start = int(made.layout.d[0])
        nbytes = 250 * 200 * dtypes.BY_NAME[kernel.output].size
        with ran(device, made, DataSpec("normal", 5)) as session:
            bits.append(session.read(start, start + nbytes))
    assert np.array_equal(*bits)


SPLIT_SHAPES = [
    (250, 256, 4096, 1, 0), (256, 130, 2568, 0.5, 1), (40, 255, 8192, 1, 0), (9, 64, 64, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize(("splits", "parts"), [(5, [2, 1, 5, 1]), (16, [8, 5, 16, 1])])
def test_split_sums_are_right_and_the_same_every_time(
    device: CudaDevice, kernel: Kernel, splits: int, parts: list[int], kind: data.Kind
) -> None:
    groups = (
        f"{{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, ldd: 264, alpha: {alpha}, "
        f"beta: {beta if takes_all(kernel) else 0}}}"
        for m, n, k, alpha, beta in (
            (m, columns_for(kernel, n), *rest) for m, n, *rest in SPLIT_SHAPES
        )
    )
    text = f"{head_of(kernel)}  - {{name: x, groups: [{', '.join(groups)}]}}\n"
    (made,) = reading.load(["-"], io.StringIO(text))
    whole = planned_problem(made, kernel)
    choice = Choice(kernel.name, kernel.max_width, splits)
    launch = cut_as(made, np.arange(4), kernel, choice)
    assert launch.parts.tolist() == parts
    split, spec = replace(whole, launches=(launch,)), DataSpec(kind, 13)
    with ran(device, split, spec) as session:
        assert wrong(split, session, spec) == []
        repeat_alike(session, split, 100)


def test_tensor_maps_are_those_of_the_driver(
    device: CudaDevice, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "SHUFFLED_RUNS", 1)  # whatever width the plan takes
    gated = [
        f"      - {{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, gate: {gate}}}\n"
        for m, n, k, gate in (
            (40, 130, 72, "halves"), (9, 8, 8, "pairs"),
            (20, 64, 40, "halves"), (20, 48, 16, "pairs"),
        )
    ]  # fmt: skip
    short = "      - {m: 40, n: 384, k: 72, lda: 72, ldb: 128}\n"  # rows may come shuffled
    more = gated if takes_gates(kernel) else [short] if kernel.shuffles else []
    made = planned(awkward_for(kernel) + "".join(more), kernel)
    assert made.launches[0].shuffled.any() == kernel.shuffles
    (launch,), columns, layout = made.launches, seen(made.exchanged, kernel), made.layout
    of_a, of_b = (layout.b, layout.a) if kernel.d_across else (layout.a, layout.b)
    if kernel.b_unaligned:
        of_a = made.packing.a
    size = dtypes.BY_NAME[kernel.operand].size
    with device.open(made, DataSpec("int", 0)) as session:
        (ready,) = session.ready
        count = len(launch.groups)
        got = device.download(ready.params.maps, MAPS * count * MAP_BYTES).reshape(
            count, MAPS, MAP_BYTES
        )
        for i, group in enumerate(launch.groups.tolist()):
            m, n, k = (int(v[group]) for v in (columns.m, columns.n, columns.k))
            if k == 0:  # nothing is loaded, and the maps of nothing stay unused
                continue
            width, n_of_c = int(launch.loaded[i]), 128 // int(columns.sizes["c"][group])
            ld_a, ld_b = (int(ld[group]) * size for ld in (columns.lda, columns.ldb))
            halves = columns.gate[group] == GATES.index("halves")
            a: tuple[tuple[int, ...], ...] = (k, m), (ld_a,), (K_TILE, width // kernel.cluster)
            b: tuple[tuple[int, ...], ...] = (k, n), (ld_b,), (K_TILE, kernel.rows)
            if columns.gate[group]:  # two halves of B's rows, or every other row, eight at a time
                strides = (ld_b, n // 2 * ld_b) if halves else (2 * ld_b, ld_b)
                b = (k, n // 2, 2), strides, (K_TILE, 8, 2)
                if n % 16 == 0:  # all of a tile's at once
                    eights = (*strides, 8 * strides[0])
                    b = (k, 8, 2, n // 16), eights, (K_TILE, 8, 2, kernel.rows // 16)
            if launch.shuffled[i]:  # rows in pairs, four of these, as many as make a run, and runs
                run = kernel.run
                strides = (ld_a, run // 4 * ld_a, 2 * ld_a, run * ld_a)
                box = (K_TILE, 2, 4, run // 8, width // kernel.cluster // run)
                a = (k, 2, 4, run // 8, m // run), strides, box
            if kernel.a_across:
                a = (m, k), (ld_a,), (BOX_ROWS, K_TILE // kernel.cluster)
            if kernel.b_across:
                b = (n, k), (ld_b,), (BOX_ROWS, K_TILE)
            matrices = [(kernel.operand, of_a, *a), (kernel.operand, of_b, *b)]
            if kernel.b_unaligned:  # A is woven, and no map brings B
                ld_a = int(made.packing.lda[group])
                a = (ld_a, m), (ld_a * size,), (K_TILE, width // kernel.cluster)
                matrices = [(kernel.operand, of_a, *a), None]
            of_group = launch.tiles[launch.tiles["group"] == i]
            if (of_group["c_stages"] > 0).any() and not (of_group["flags"] & TILE_RESIDUES).any():
                ld_c = int(columns.ldc[group] * columns.sizes["c"][group])
                dtype_c = "f32" if n_of_c == 32 else "bf16"
                matrices.append((dtype_c, layout.c, (n, m), (ld_c,), (n_of_c, width)))
            for which, matrix in enumerate(matrices):
                if matrix is None:
                    continue
                dtype, offsets, *extents_strides_box = matrix
                at = session.base + int(offsets[group])
                expected = encode_map(dtype, at, *extents_strides_box)
                assert np.array_equal(got[i, which], expected), (group, "ABC"[which])


def test_d_is_the_same_wherever_maps_are(device: CudaDevice, kernel: Kernel) -> None:
    sizes = [(17 + i % 40, columns_for(kernel, 24 + i % 60)) for i in range(CONSTANT_MAPS // 2)]
    more = [f"m: {m}, n: {n}, k: 72, {padded(kernel, m, n, 72)}" for m, n in sizes]
    if takes_all(kernel):  # C's map, or D's where it is added to
        more.insert(
            0, f"m: 70, n: 136, k: 72, {padded(kernel, 70, 136, 72)}, beta: 1, inplace: true"
        )
    text = awkward_for(kernel) + "".join(f"      - {{{group}}}\n" for group in more)
    made, spec = planned(text, kernel), DataSpec("int", 3)
    (launch,) = made.launches
    with ran(device, made, spec) as first, ran(device, made, spec) as second:
        (there,), (none,) = ([r.params.constants for r in s.ready] for s in (first, second))
        assert there.groups == CONSTANT_MAPS // there.each < len(launch.groups)
        assert none.groups == 0  # another session has constant memory
        assert wrong(made, first, spec) == []
        assert np.array_equal(first.digests(), second.digests())


@pytest.mark.parametrize("kernel", [k for k in ONE_OF_EACH if not k.b_unaligned], ids=named)
def test_maps_that_are_copied_to_constant_memory_are_those_of_the_next_run(
    device: CudaDevice, kernel: Kernel
) -> None:
    group = f"{{m: 200, n: 256, k: 200, {padded(kernel, 200, 256, 200)}, count: 2}}"
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{group}]}}\n", kernel)
    with ran(device, made, DataSpec("normal", 5)) as session:
        (ready,) = session.ready
        row, own = ready.params.constants.each * MAP_BYTES, session.digests()
        assert own[0] != own[1]
        for turn in range(100):
            session.run()
            exchanged = turn % 2 == 0
            for i in range(2):
                to = ready.constants + i * row, row
                source = ready.params.maps + (i ^ exchanged) * MAPS * MAP_BYTES, row
                device.copy_rows(to, source, row, 1, device.stream)
            session.run()
            assert np.array_equal(session.digests(), own[::-1] if exchanged else own)


@every_fusing_kernel
@pytest.mark.parametrize("c", ["bf16", "f32"])
def test_tensor_maps_of_residues_are_those_of_the_driver(
    device: CudaDevice, kernel: Kernel, c: str
) -> None:
    groups = "".join(
        f"      - {{m: {m}, n: {n}, k: 64, {padded(kernel, m, n, 64)}, "
        f"ldc: {ldc}, beta: 1, c: {c}}}\n"
        for m, n, ldc in ((500, 64, 65), (9, 257, 257), (40, 30, 41), (3, 8, 13))
    )
    made = planned(f"{head_of(kernel)}  - name: odd\n    groups:\n{groups}", kernel)
    (launch,), columns, layout = made.launches, made.problem.columns, made.layout
    size = dtypes.BY_NAME[c].size
    with device.open(made, DataSpec("int", 0)) as session:
        (ready,) = session.ready
        count = len(launch.groups)
        got = device.download(ready.params.residues, RESIDUES * count * MAP_BYTES)
        maps = got.reshape(count, RESIDUES, MAP_BYTES)
        for i, group in enumerate(launch.groups.tolist()):
            m, n, ld = (int(v[group]) for v in (columns.m, columns.n, columns.ldc))
            rows = int(launch.loaded[i]) // RESIDUES + RESIDUE_LEAD
            for residue in range(min(RESIDUES, m)):
                at = session.base + int(layout.c[group]) + residue * ld * size
                off = at % 16
                expected = encode_map(
                    c,
                    at - off,
                    (n + off // size, -(-(m - residue) // RESIDUES)),
                    (RESIDUES * ld * size,),
                    (RESIDUE_ROW_BYTES // size, rows),
                    swizzled=False,
                )
                assert np.array_equal(maps[i, residue], expected), (group, residue)


@pytest.mark.parametrize("kind", data.KINDS)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("offset", [0, 3])
def test_the_gpu_generates_the_bits_that_numpy_does(
    device: CudaDevice, kind: data.Kind, dtype: str, across: bool, offset: int
) -> None:
    operand = "bf16" if dtype == "f32" else dtype
    layouts = ("col", "row", "col") if across else RCR
    shape = "m: 370, n: 1001, k: 1000, lda: 1008, ldb: 1008, ldc: 1003"
    begins = f"a_offset: {offset}, b_offset: {offset}, c_offset: {offset}"
    text = f"{{{shape}, {begins}, c: {dtype}, beta: 1}}"
    made = planned(f"{head(operand, operand, layouts)}  - {{name: x, groups: [{text}]}}\n")
    spec = DataSpec(kind, 1 << 40)
    (product,) = products_of(made, spec, "cuda")
    group, layout = made.problem.groups[0], made.layout
    a, b = (product.b, product.a) if product.exchanged else (product.a, product.b)
    with device.open(made, spec) as session:
        for source, begin, rows, ld in (
            (a, layout.a, group.m, group.lda),
            (b, layout.b, group.n, group.ldb),
            (product.c, layout.c, group.m, group.ldc),
        ):
            start, size = int(begin[0]), source.dtype.size
            runs = source.length if across else rows
            memory = session.read(start, start + runs * ld * size)
            stored = memory.view(source.dtype.storage).reshape(-1, ld)
            bits = source.bits(rows, source.length)
            expected = bits.T if across else bits
            assert np.array_equal(stored[:, : expected.shape[1]], expected)
            assert (stored[:, expected.shape[1] :].view(np.uint8) == 0xFF).all()


# Sizes around words of eight elements, slices of K and tiles; rows packed, and longer by so many.
ODD_SHAPES = [
    (1, 1, 1), (2, 3, 9), (7, 130, 71), (16, 64, 63), (33, 41, 65), (129, 257, 127),
    (255, 129, 1001), (1, 264, 999), (264, 1, 999), (301, 501, 333), (40, 24, 4099), (0, 8, 7),
    (513, 136, 2047),
]  # fmt: skip


def odd(kernel: Kernel, longer: int, more: str = "") -> str:
    """A list whose rows of A and B do not begin on 16-byte boundaries, or few of them do."""
    a_layout, b_layout, _ = layouts_of(kernel)
    groups = [
        f"{{m: {m}, n: {n}, k: {k}, lda: {max(1, m if a_layout == 'col' else k) + longer}, "
        f"ldb: {(n if b_layout == 'row' else k) + 3 * longer}{more}}}"
        for m, n, k in ((m, columns_for(kernel, n), k) for m, n, k in ODD_SHAPES)
    ]
    lines = "".join(f"      - {group}\n" for group in groups)
    return f"{head_of(kernel)}  - name: odd\n    groups:\n{lines}"


@pytest.mark.parametrize("longer", [0, 1, 3])
@pytest.mark.parametrize("kind", data.KINDS)
def test_rows_off_16_byte_boundaries_are_packed(
    device: CudaDevice, kernel: Kernel, kind: data.Kind, longer: int
) -> None:
    made, spec = planned(odd(kernel, longer), kernel), DataSpec(kind, 41)
    assert made.packing.bytes
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


UNALIGNED = [of for of in KERNELS if of.b_unaligned]


@pytest.mark.parametrize("kernel", UNALIGNED, ids=named)
@pytest.mark.parametrize("k", [1, 7, 63, 64, 65, 250, 2041])
def test_an_unaligned_b_is_right_wherever_its_rows_begin_and_end(
    device: CudaDevice, kernel: Kernel, k: int
) -> None:
    groups = ", ".join(
        f"{{m: {m}, n: {n}, k: {k}, lda: {k + i}, ldb: {k + longer}, ldc: {n + 5}, beta: {i % 2}}}"
        for longer in range(9)
        for i, (m, n) in enumerate([(1, 1), (33, 300), (257, 129), (16, 512)])
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    spec = DataSpec("int", 59)
    right_and_alike(device, made, spec, 100)


@pytest.mark.parametrize("kernel", UNALIGNED, ids=named)
def test_short_sums_beside_an_unaligned_b_lose_no_more_than_is_explained(
    device: CudaDevice, kernel: Kernel
) -> None:
    groups = ", ".join(f"{{m: 200, n: 300, k: {k}}}" for k in (1, 4, 8, 15, 16, 17, 24, 33, 65, 72))
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    spec = DataSpec("normal", 67)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("kernel", UNALIGNED, ids=named)
def test_what_lies_beside_the_rows_of_an_unaligned_b_does_not_count(
    device: CudaDevice, kernel: Kernel
) -> None:
    """Between its rows and behind the last one there are NaN: the arena is filled with 0xFF."""
    groups = ", ".join(
        f"{{m: 40, n: {n}, k: {k}, ldb: {k + 67}}}" for n in (127, 128, 300) for k in (61, 64, 129)
    )
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{groups}]}}\n", kernel)
    spec = DataSpec("int", 61)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@every_fusing_kernel
@pytest.mark.parametrize(
    "more",
    [
        ", beta: 1",
        ", beta: -1, inplace: true",
        ", bias: n",
        ", bias: m",
        ", activation: relu",
        ", bias: n, activation: relu",
        ", bias: m, activation: silu",
    ],
)
def test_what_is_fused_follows_a_packed_product(
    device: CudaDevice, kernel: Kernel, more: str
) -> None:
    made, spec = planned(odd(kernel, 1, more), kernel), DataSpec("int", 43)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@every_fusing_kernel
@pytest.mark.parametrize("c", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("inplace", [False, True])
def test_rows_of_c_off_16_byte_boundaries_are_added(
    device: CudaDevice, kernel: Kernel, c: str, *, inplace: bool
) -> None:
    if inplace and c != kernel.output:
        return  # one matrix has one type
    groups = "".join(
        f"      - {{m: {m}, n: {n}, k: {k}, {padded(kernel, m, n, k)}, beta: -1, "
        + (f"ldd: {n + i % 4}, inplace: true}}\n" if inplace else f"c: {c}, ldc: {n + i % 4}}}\n")
        for i, (m, n, k) in enumerate(ODD_SHAPES)
    )
    made = planned(f"{head_of(kernel)}  - name: odd\n    groups:\n{groups}", kernel)
    assert made.launches[0].residues
    spec = DataSpec("int", 44)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("gate", ["halves", "pairs"])
def test_a_packed_b_has_its_columns_gated(device: CudaDevice, gate: str) -> None:
    shapes = [(17, 64, 63), (70, 130, 65), (300, 528, 1001)]
    groups = ", ".join(f"{{m: {m}, n: {n}, k: {k}, gate: {gate}}}" for m, n, k in shapes)
    made = planned(f"{head('bf16', 'bf16')}  - {{name: x, groups: [{groups}]}}\n")
    spec = DataSpec("normal", 47)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
@pytest.mark.parametrize("cold", [True, False])
def test_every_run_packs_however_it_is_launched(
    device: CudaDevice, launch: plan.Launching, cold: bool
) -> None:
    (some,) = reading.load(["-"], io.StringIO(odd(KERNELS[0], 1)))
    (made,) = plan.make([some], KERNELS, launch=launch)
    spec, packing = DataSpec("int", 53), made.packing
    with device.open(made, spec) as session:
        session.run()
        first = session.digests()
        begin = int(packing.to.min())
        device.fill_bytes(session.base + begin, packing.end - begin, 0xFF)  # NaN
        session.poison()
        session.time(3, cold=cold)
        assert np.array_equal(session.digests(), first)
        assert wrong(made, session, spec) == []


def test_the_gpu_packs_lines_as_numpy_does(device: CudaDevice) -> None:
    lines = [  # offset of the first, pitch and length in bytes, how many
        *((1000 * i + 2 * i, 62, 2 * i, 16) for i in range(1, 31)),
        *((40_000 + off, 4099, 4098, 9) for off in range(16)),
        (80_000, 16, 16, 1000), (100_001, 3, 1, 5000), (120_002, 1 << 17, 100_000, 7),
    ]  # fmt: skip
    memory = np.random.default_rng(2).integers(0, 256, 1 << 20, np.uint8)
    lines = [(*line, woven) for woven in (True, False) for line in lines if line[2] % 2 < 2 - woven]
    words = [int(packing.words(length, woven)) * count for _, _, length, count, woven in lines]
    ends = np.cumsum(words)
    with ExitStack() as cleanup:
        at = device.allocate(memory.nbytes, cleanup)
        to = device.allocate(16 * int(ends[-1]) + 16, cleanup)
        records = np.array(
            [
                (at + begin, pitch, length, to + 16 * (end - own), end - own, end, woven)
                for (begin, pitch, length, _, woven), own, end in zip(
                    lines, words, ends.tolist(), strict=True
                )
            ],
            tables.PACK,
        )
        told = device.allocate(records.nbytes, cleanup)
        device.upload(at, memory)
        device.upload(told, records)
        device.fill_bytes(to, 16 * int(ends[-1]) + 16, 0xFF)
        device.launch(
            device.support("pack"),
            (constants.PACK_CTAS * device.machine.sm_count, 1),
            constants.PACK_THREADS,
            [ctypes.c_uint64(told), ctypes.c_uint32(len(records))],
        )
        found = device.download(to, 16 * int(ends[-1]) + 16)
    for line, own, end in zip(lines, words, ends.tolist(), strict=True):
        begin, pitch, length, count, woven = line
        copies = found[16 * (end - own) : 16 * end].reshape(count, -1)
        source = np.ndarray((count, length), np.uint8, memory, begin, (pitch, 1))
        if woven:
            copies = packing.unweave(copies)
            assert not copies[:, length:].any(), line
        assert np.array_equal(copies[:, :length], source), line
    assert (found[-16:] == 0xFF).all()


def test_the_digests_of_d_are_those_of_numpy(device: CudaDevice) -> None:
    made = planned(awkward("bf16", "bf16"))
    with ran(device, made, DataSpec("normal", 3)) as session:
        found = session.digests()
        for index, group in enumerate(made.problem.groups):
            dtype, start = dtypes.BY_NAME[group.d], int(made.layout.d[index])
            memory = session.read(start, start + group.m * group.ldd * dtype.size)
            bits = data.matrix(memory, 0, group.m, group.n, group.ldd, dtype)
            assert int(found[index]) == digest(bits), index


def test_the_gpu_hashes_rows_as_numpy_does(device: CudaDevice) -> None:
    shapes = [  # offset of the first row, pitch and length in bytes, rows
        (0, 4096, 4096, 100), (4096 * 100, 4112, 4098, 33), (600_002, 130, 130, 70),
        (700_000, 1026, 1024, 9), (800_000, 1024, 1022, 9), (900_000, 16, 2, 5000),
    ]  # fmt: skip
    memory = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    with ExitStack() as cleanup:
        at = device.allocate(memory.nbytes, cleanup)
        records = np.array(
            [(at + begin, *rest, i) for i, (begin, *rest) in enumerate(shapes)], tables.HASHED
        )
        told = device.allocate(records.nbytes, cleanup)
        out = device.allocate(8 * len(shapes), cleanup)
        device.upload(at, memory)
        device.upload(told, records)
        device.fill_bytes(out, 8 * len(shapes), 0)
        device.launch(
            device.support("hash_rows"),
            (7, 2),
            constants.HASH_THREADS,
            [ctypes.c_uint64(told), ctypes.c_uint32(len(shapes)), ctypes.c_uint64(out)],
        )
        found = device.download(out, 8 * len(shapes)).view(np.uint64)
    for (begin, pitch, length, rows), got in zip(shapes, found.tolist(), strict=True):
        bits = np.ndarray((rows, length // 2), np.uint16, memory, begin, (pitch, 2))
        assert got == digest(bits)


@pytest.mark.parametrize("clusters", [1, 2, 7, 64, 66])
def test_so_many_clusters_have_so_many_places_on_the_chip(
    device: CudaDevice, clusters: int
) -> None:
    kernel = next(kernel for kernel in KERNELS if kernel.cluster == 2)
    assert sorted(device.places(kernel, clusters)) == list(range(clusters))


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("waves", [1, 2, 3])
@pytest.mark.parametrize("kernel", ONE_OF_EACH, ids=named)
def test_lists_that_end_where_tiles_begin_to_be_drawn_are_right_again_and_again(
    device: CudaDevice, kernel: Kernel, waves: int, more: int
) -> None:
    room = device.room(device.function(kernel.file, kernel.symbol, kernel.shared_bytes), kernel)
    one = f"{{m: 33, n: 32, k: 128, {padded(kernel, 33, 32, 128)}, count: {waves * room + more}}}"
    made = planned(f"{head_of(kernel)}  - {{name: x, groups: [{one}]}}\n", kernel)
    (launch,) = made.launches
    assert len(launch.tiles) - waves * room == more
    spec = DataSpec("int", 8)
    with ran(device, made, spec) as session:
        repeat_alike(session, made, 5)
        assert wrong(made, session, spec) == []


def test_ten_thousand_groups_are_right_and_set_up_in_time(device: CudaDevice) -> None:
    text = "gemmctl: 1\nproblems:\n  - {name: x, groups: [{m: 24, n: 40, k: 72, count: 10000}]}\n"
    made, spec = planned(text), DataSpec("int", 7)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []
        assert session.setup.device_s is not None
        print(f"set-up of 10,000 groups: {session.setup}")


def test_a_list_of_empty_groups_runs_nothing(device: CudaDevice) -> None:
    text = "gemmctl: 1\nproblems:\n  - {name: x, groups: [{m: 0, n: 8, k: 8, count: 5}]}\n"
    made, spec = planned(text), DataSpec("int", 7)
    with ran(device, made, spec) as session:
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("cold", [True, False])
def test_times_are_positive_and_leave_the_result_alone(device: CudaDevice, cold: bool) -> None:
    made, spec = planned(awkward("bf16", "bf16")), DataSpec("int", 2)
    with ran(device, made, spec) as session:
        assert all(0 < sample.seconds < 0.01 for sample in session.time(5, cold=cold))
        assert wrong(made, session, spec) == []


def test_what_does_not_fit_is_refused_before_it_is_allocated(device: CudaDevice) -> None:
    group = "{m: 2000, n: 8, k: 8, lda: 100000000}"
    text = f"gemmctl: 1\nproblems:\n  - {{name: x, groups: [{group}]}}\n"
    with (
        pytest.raises(
            Exception, match=r"need 40\d\.\d\d GB of GPU memory and \d+\.\d\d GB are free"
        ),
        device.open(planned(text), DataSpec("int", 0)),
    ):
        pass


HANGS = """
import io
from gemmctl.kernels import cubins
from gemmctl.planning import plan
from gemmctl.lists import reading
from gemmctl.operands.data import DataSpec
from gemmctl.device.cuda import CudaDevice
from gemmctl import __main__ as command
from gemmctl import cli

text = "gemmctl: 1\\nproblems:\\n  - {name: x, groups: [{m: 64, n: 64, k: 64}]}\\n"
(made,) = plan.make(reading.load(["-"], io.StringIO(text)), cubins.manifest().kernels)
made.launches[0].tiles["k_tiles"] = 2**32 - 1  # an hour of zeros from outside of A and B

def hang(**_):
    with CudaDevice(time_limit_s=2).open(made, DataSpec("int", 0)) as session:
        session.run()

cli.app = hang
command.main()
"""


def test_a_kernel_that_does_not_end_is_given_up_with_exit_code_4(device: CudaDevice) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60,
        env=environment(GEMMCTL_DEVICE="cuda"), check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "did not finish within 2 s" in done.stderr
