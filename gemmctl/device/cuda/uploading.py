"""Launches with their tables on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.device.cuda import placement
from gemmctl.device.cuda.gpu import Gpu
from gemmctl.device.cuda.params import (
    GROUP_ARRAYS,
    ConstantMaps,
    GroupArrays,
    Params,
    Ring,
)
from gemmctl.kernels.constants import (
    CONSTANT_MAPS,
    FLAGS_PER_TILE,
    MAP_BYTES,
    MAPS,
    RESIDUES,
)
from gemmctl.planning import tables
from gemmctl.planning.arrays import Ints
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiles import TILE, Launch


@dataclass(frozen=True)
class Loaded:
    """One launch whose kernel is on the device."""

    launch: Launch
    function: Any
    clusters: int  # to start: what the plan wants, or what fits
    order: Ints  # in which its tiles are handed out


@dataclass(frozen=True)
class Ready(Loaded):
    """One launch whose tables are on the device, too."""

    params: Params
    constants: int  # where its maps in constant memory begin, if it has any


def load(device: Gpu, launch: Launch) -> Loaded:
    """Load a launch's kernel and see how many clusters of it fit.

    CTAs without a cluster are neighbours as they are. Split sums stay in their order, since
    neighbours in the list are parts of one sum, and share nothing (`longk` took 5 to 8% longer);
    but where CTAs only wait for others, those lie apart.
    """
    kernel, tiles, k_tiles = launch.kernel, launch.tiles, launch.k_tiles
    function = device.function(kernel.file, kernel.symbol, kernel.shared_bytes)
    clusters, single = min(launch.clusters, device.room(function, kernel)), kernel.ctas == 1
    order = np.arange(len(tiles))
    if clusters:
        places = np.arange(clusters) if single else device.places(kernel, clusters)
        if launch.slots:
            order = placement.apart(tiles["k_tiles"] > 0, places)
        else:
            alike = bool(k_tiles.min() == k_tiles.max())
            order = placement.dealt(len(tiles), places, alike, single)
    return Loaded(launch, function, clusters, order)


def upload(
    device: Gpu,
    loaded: Sequence[Loaded],
    plan: Plan,
    base: int,
    cleanup: ExitStack,
    uploaded: ExitStack,
) -> list[Ready]:
    """Queue a copy of the tables of a plan's launches to the device, in one piece.

    The plan's arena lies at ``base``. Behind the tables is room for counters and tensor maps; all
    of it lives until ``cleanup``, and what is copied until ``uploaded``, which has to come later
    than the copy.
    """
    end = np.zeros(1, TILE)  # width 0 ends a tile list
    parts: list[npt.NDArray[Any]] = []
    for one in loaded:
        table = tables.build(one.launch, plan, base)
        parts += [getattr(table, name) for name in GROUP_ARRAYS]
        parts += [np.concatenate([table.tiles[one.order], end])]
        parts += [np.zeros(1, np.uint32), np.zeros(one.launch.flags * FLAGS_PER_TILE, np.uint32)]
    sizes = [-(-part.nbytes // MAP_BYTES) * MAP_BYTES for part in parts]
    offsets = np.cumsum([0, *sizes])
    ends = int(offsets[-1])
    groups = [len(one.launch.groups) for one in loaded]
    of_residues = [
        RESIDUES * count if one.launch.residues else 0
        for one, count in zip(loaded, groups, strict=True)
    ]
    nbytes = ends + MAP_BYTES * (MAPS * sum(groups) + sum(of_residues))
    block = device.allocate(nbytes, cleanup)
    host = device.pinned(max(ends, 1), uploaded)
    for part, offset in zip(parts, offsets, strict=False):
        host[offset : offset + part.nbytes] = part.view(np.uint8)
    if ends:
        device.upload(block, host)
    at = iter(int(block + offset) for offset in offsets)
    maps = block + ends
    residues = maps + MAP_BYTES * MAPS * sum(groups)
    ready = []
    constants = _constants(device, loaded, plan, cleanup)
    for one, count, more, (there, told) in zip(loaded, groups, of_residues, constants, strict=True):
        launch = one.launch
        arrays = GroupArrays(*(next(at) for _ in GROUP_ARRAYS))
        tiles, counter, flags = next(at), next(at), next(at)
        params = Params(
            tiles=tiles,
            tile_count=len(launch.tiles),
            ahead=launch.ahead,
            ring=Ring(launch.stages, launch.stage_bytes),
            counter=counter,
            flags=flags,
            tables=block,
            tables_bytes=nbytes,
            workspace=device.allocate(launch.workspace_bytes, cleanup),
            maps=maps,
            residues=residues if more else 0,
            constants=told,
            groups=arrays,
        )
        ready.append(Ready(**vars(one), params=params, constants=there))
        maps += MAPS * MAP_BYTES * count
        residues += MAP_BYTES * more
    return ready


def _constants(
    device: Gpu, loaded: Sequence[Loaded], plan: Plan, cleanup: ExitStack
) -> Iterator[tuple[int, ConstantMaps]]:
    """Where each launch's maps in constant memory begin, and which they are.

    Launches of one file share its CONSTANT_MAPS: who comes first is served first. A graph builds
    its maps anew, and would have to copy them there every time.
    """
    begin: dict[str, int] = {}  # of each file's
    room: dict[str, int] = {}  # maps that are left of them
    for one in loaded:
        file, each = one.launch.kernel.file, one.launch.maps_each
        if file not in room:
            begin[file] = 0 if plan.launch == "graph" else device.claim_constants(file, cleanup)
            room[file] = CONSTANT_MAPS if begin[file] else 0
        first = CONSTANT_MAPS - room[file]
        groups = min(len(one.launch.groups), room[file] // each)
        room[file] -= groups * each
        yield begin[file] + first * MAP_BYTES, ConstantMaps(first, groups, each)
