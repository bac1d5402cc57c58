"""The CPU as a device, and the choice of a device."""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import replace
from itertools import count
from types import ModuleType

import numpy as np
import pytest

from gemmctl.device import blas, cpu, open_device
from gemmctl.device.cpu import CpuDevice
from gemmctl.errors import DeviceFailed, DeviceUnusable, UsageError
from gemmctl.kernels.constants import RECIPE_NORMAL
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec, Operand
from gemmctl.planning.arena import FENCE
from support import TWO_PROBLEMS, make_plans

INTEGERS = DataSpec("int", 11)


def plan_of(*groups, defaults=""):
    lines = "".join(f"      - {{{group}}}\n" for group in groups)
    (plan,) = make_plans(
        f"gemmctl: 1\nproblems:\n  - name: some\n    defaults: {{{defaults}}}\n    groups:\n{lines}"
    )
    return plan


def operand(plan, session, group, name):
    """A matrix in the arena, as bits: storage rows x columns."""
    found = plan.problem.groups[group]
    rows, cols = {"a": (found.m, found.k), "b": (found.n, found.k)}.get(name, (found.m, found.n))
    dtype = dtypes.BY_NAME[getattr(found, name)]
    memory = session.read(0, plan.layout.size)
    offset = int(getattr(plan.layout, name)[group])
    return data.matrix(memory, offset, rows, cols, getattr(found, f"ld{name}"), dtype)


def values(plan, session, group, name):
    dtype = dtypes.BY_NAME[getattr(plan.problem.groups[group], name)]
    return dtype.to_f32(operand(plan, session, group, name)).astype(np.float64)


def product(plan, session, group):
    """D as it has to be, from the operands in the arena; exact for integers."""
    found = plan.problem.groups[group]
    result = found.alpha * (values(plan, session, group, "a") @ values(plan, session, group, "b").T)
    if found.beta:
        result = result + found.beta * values(plan, session, group, "c")
    return dtypes.BY_NAME[found.d].from_float(result)


@pytest.mark.parametrize("d", dtypes.BY_NAME)
@pytest.mark.parametrize("ab", ["bf16", "f16"])
def test_products_of_every_type_and_odd_shape_are_right(ab, d):
    plan = plan_of(
        "m: 1, n: 8, k: 8",
        "m: 300, n: 264, k: 40",
        "m: 17, n: 520, k: 1032, lda: 1040, ldb: 1048, ldd: 528",
        "m: 33, n: 96, k: 64, alpha: 0.5, beta: -2, ldc: 101",
        defaults=f"a: {ab}, d: {d}",
    )
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        for group in range(4):
            assert np.array_equal(
                operand(plan, session, group, "d"), product(plan, session, group)
            ), group


@pytest.mark.parametrize("c", dtypes.BY_NAME)
def test_c_may_have_a_type_of_its_own(c):
    plan = plan_of(f"m: 20, n: 40, k: 24, beta: 1, c: {c}, d: f32")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        assert np.array_equal(operand(plan, session, 0, "d"), product(plan, session, 0))


@pytest.mark.parametrize("nothing", ["k: 0", "k: 64, alpha: 0"])
def test_where_nothing_is_multiplied_the_result_is_beta_c(nothing):
    plan = plan_of(f"m: 40, n: 96, {nothing}, beta: 2", f"m: 40, n: 96, {nothing}")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        assert np.array_equal(values(plan, session, 0, "d"), 2 * values(plan, session, 0, "c"))
        assert not values(plan, session, 1, "d").any()


def test_c_is_not_read_where_beta_is_0():
    plan = plan_of("m: 40, n: 96, k: 16")
    with CpuDevice().open(plan, INTEGERS) as session:
        assert np.isnan(values(plan, session, 0, "c")).all()
        session.run()
        assert np.isfinite(values(plan, session, 0, "d")).all()


def test_empty_groups_are_passed_over():
    plan = plan_of("m: 0, n: 64, k: 64", "m: 8, n: 8, k: 8", "m: 64, n: 0, k: 64")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        assert np.array_equal(operand(plan, session, 1, "d"), product(plan, session, 1))


def test_a_tile_that_is_not_in_the_list_stays_poison():
    whole = plan_of("m: 300, n: 600, k: 16, beta: 1")  # so that no tile overlaps another
    (launch,) = whole.launches
    *_, left_out = launch.tiles
    plan = replace(whole, launches=(replace(launch, tiles=launch.tiles[:-1]),))
    m, n = (600, 300) if launch.kernel.d_across else (300, 600)
    rows = np.arange(m) - int(left_out["m0"])
    cols = np.arange(n) - int(left_out["n0"])
    inside = np.outer(
        (rows >= 0) & (rows < left_out["width"]),
        (cols >= 0) & (cols < launch.kernel.columns_per_tile),
    )
    inside = inside.T if launch.kernel.d_across else inside
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        assert np.array_equal(operand(plan, session, 0, "d") == 0xFFFF, inside)
        assert inside.any() and not inside.all()


def test_operands_are_what_the_seed_says():
    plan = plan_of("m: 8, n: 16, k: 24", "m: 5, n: 8, k: 16, beta: 1, c: f32", defaults="a: f16")
    spec = DataSpec("normal", 77)
    with CpuDevice().open(plan, spec) as session:
        for which, name in enumerate("abc"):
            bits = operand(plan, session, 1, name)
            key = int(data.keys(77, which, np.array([1]))[0])
            dtype = dtypes.BY_NAME["f32" if name == "c" else "f16"]
            made = Operand(RECIPE_NORMAL, key, 1, bits.shape[1], dtype)
            assert np.array_equal(bits, made.bits(*bits.shape)), name


def test_everything_but_the_operands_is_poison():
    padded = "m: 9, n: 24, k: 16, lda: 24, ldb: 40, ldc: 27, ldd: 32, beta: 1"
    plan = plan_of(padded, "m: 7, n: 8, k: 8")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        memory = session.read(0, plan.layout.size)
        for group, names in ((0, "abcd"), (1, "abd")):
            for name in names:
                bits = operand(plan, session, group, name)
                assert (bits != np.iinfo(bits.dtype).max).all()
                bits[:] = np.iinfo(bits.dtype).max
        assert (memory == 0xFF).all()


def test_poison_covers_every_d_and_its_fences():
    plan = plan_of("m: 9, n: 24, k: 16, ldd: 32", "m: 7, n: 8, k: 8")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        session.poison()
        layout = plan.layout
        assert layout.d_begin <= layout.d[0] - FENCE
        assert (session.read(layout.d_begin, layout.d_end) == 0xFF).all()


def test_a_run_gives_the_same_bits_every_time():
    plan = plan_of("m: 100, n: 264, k: 1000, d: f32", "m: 33, n: 48, k: 600, alpha: 0.3, d: f32")
    with CpuDevice().open(plan, DataSpec("normal", 1)) as session:
        session.run()
        first = session.read(plan.layout.d_begin, plan.layout.d_end).copy()
        session.poison()
        session.run()
        assert np.array_equal(session.read(plan.layout.d_begin, plan.layout.d_end), first)


@pytest.mark.parametrize("cold", [True, False])
def test_every_timed_run_is_one_sample_and_does_the_work(cold):
    plan = plan_of("m: 16, n: 16, k: 16")
    with CpuDevice().open(plan, INTEGERS) as session:
        samples = session.time(3, cold=cold)
        assert len(samples) == 3 and min(sample.seconds for sample in samples) > 0
        assert np.array_equal(operand(plan, session, 0, "d"), product(plan, session, 0))


@pytest.mark.parametrize(("seconds", "runs"), [(0, 1), (9, 3), (10, 4)])
def test_runs_go_on_until_the_time_is_up_each_a_sample_that_is_watched(seconds, runs, monkeypatch):
    plan = plan_of("m: 16, n: 16, k: 16")
    watched = []
    with CpuDevice().open(plan, INTEGERS) as session:
        monkeypatch.setattr(cpu, "perf_counter", count().__next__)  # a second for every look
        samples = session.sustain(seconds, lambda: watched.append(1))
        assert [sample.seconds for sample in samples] == [1] * runs
        assert len(watched) == runs
        assert np.array_equal(operand(plan, session, 0, "d"), product(plan, session, 0))


def test_every_run_of_many_adds_to_c_in_place_as_it_was():
    plan = plan_of("m: 16, n: 16, k: 16, d: f32, beta: 1, inplace: true")
    with CpuDevice().open(plan, INTEGERS) as session:
        session.poison()
        session.run()
        once = session.digests()
        session.sustain(0.02, lambda: None)
        assert np.array_equal(session.digests(), once)


def test_operands_that_do_not_fit_the_store_are_converted_again(monkeypatch):
    monkeypatch.setattr(cpu, "KEPT_BYTES", 1000)
    plan = plan_of(*["m: 40, n: 520, k: 64"] * 5)
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        for group in range(5):
            assert np.array_equal(operand(plan, session, group, "d"), product(plan, session, group))
        (launch,) = session._launches
        assert len(launch.a._kept) == len(launch.b._kept) == 1


@pytest.mark.parametrize(
    ("groups", "kept"),
    [
        (["m: 100, n: 10, k: 100"], 40_000 + 4_000),
        (["m: 100, n: 10, k: 100"] * 5, 40_000 + 16_000),
        (
            ["m: 100, n: 10, k: 100", "m: 20, n: 100, k: 100, d: f32"],
            40_000 + 4_000 + 8_000 + 40_000,
        ),
        (["m: 100, n: 10, k: 100, alpha: 0", "m: 0, n: 10, k: 100"], 0),
    ],
)
def test_what_is_kept_in_float32_is_counted_as_far_as_it_is_kept(monkeypatch, groups, kept):
    monkeypatch.setattr(cpu, "KEPT_BYTES", 16_000)
    plan = plan_of(*groups)
    needed = plan.layout.size + kept
    monkeypatch.setattr(cpu, "_free_bytes", lambda: needed - 1)
    with pytest.raises(DeviceFailed), CpuDevice().open(plan, INTEGERS):
        pass
    monkeypatch.setattr(cpu, "_free_bytes", lambda: needed)
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        stores = [store for launch in session._launches for store in (launch.a, launch.b)]
        assert sum(store._kept_bytes for store in stores) <= kept


def test_an_arena_that_does_not_fit_says_what_it_takes_and_what_there_is(monkeypatch):
    monkeypatch.setattr(cpu, "_free_bytes", lambda: 1_000_000)
    plan = plan_of("m: 1000, n: 1000, k: 1000")
    said = r"some and copies of A and B in float32 take 0\.016\d* GB .* has 0\.001 GB free"
    with (
        pytest.raises(DeviceFailed, match=said),
        CpuDevice().open(plan, INTEGERS),
    ):
        pass


def test_the_cpu_names_itself_and_has_no_roofline():
    facts = CpuDevice().facts
    assert facts.kind == "cpu" and facts.name and facts.memory_bytes > 1 << 28
    assert facts.roofline is None and CpuDevice().telemetry() is CpuDevice().energy_j() is None


def test_memory_is_given_back_whoever_still_has_the_session():
    (plan,) = make_plans(TWO_PROBLEMS)[:1]
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
        arena = weakref.ref(session._arena)
    gc.collect()
    assert session.setup and arena() is None


def test_a_product_runs_on_its_callers_thread_from_the_first_run_on():
    library = blas._openblas()
    if library is None:
        pytest.skip("numpy's BLAS is not OpenBLAS")
    read, write = library
    write(2)
    (plan,) = make_plans(TWO_PROBLEMS)[:1]
    with CpuDevice().open(plan, INTEGERS) as session:
        session.run()
    assert read() == 1


@pytest.fixture
def gpus(monkeypatch):
    """A stand-in for device.cuda: one word for each GPU, ``good`` or what is wrong with it."""
    words: list[str] = []

    class CudaDevice:
        def __init__(self, ordinal):
            if ordinal >= len(words) or words[ordinal] != "good":
                raise DeviceUnusable(f"GPU {ordinal} is {words[ordinal]}")
            self.ordinal = ordinal

    def count():
        if not words:
            raise DeviceUnusable("no NVIDIA driver")
        return len(words)

    module = ModuleType("gemmctl.device.cuda")
    module.CudaDevice, module.device_count = CudaDevice, count
    monkeypatch.setitem(sys.modules, "gemmctl.device.cuda", module)
    monkeypatch.setattr("gemmctl.device.cuda", module, raising=False)
    return words


def test_cpu_is_the_cpu_even_beside_a_gpu(gpus):
    gpus.append("good")
    device, why = open_device("cpu")
    assert device.facts.kind == "cpu" and why is None


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_the_first_usable_gpu_is_taken(gpus, name):
    gpus.extend(["old", "good", "good"])
    device, why = open_device(name)
    assert device.ordinal == 1 and why is None


def test_a_number_asks_for_that_gpu(gpus):
    gpus.extend(["good", "good", "good"])
    assert open_device("cuda:2")[0].ordinal == 2


@pytest.mark.parametrize("words", [[], ["old", "small"]])
def test_auto_takes_the_cpu_and_says_why(gpus, words):
    gpus.extend(words)
    device, why = open_device("auto")
    assert device.facts.kind == "cpu"
    assert why == ("GPU 0 is old; GPU 1 is small" if words else "no NVIDIA driver")


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_that_was_asked_for_is_not_replaced(gpus, name):
    gpus.append("old")
    with pytest.raises(DeviceUnusable, match="GPU 0 is old"):
        open_device(name)


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "Auto"])
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="auto, cpu, cuda or cuda:N"):
        open_device(name)
