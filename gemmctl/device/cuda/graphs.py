"""CUDA graphs of what was queued, made ready to be launched at any time."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from cuda.bindings import driver

from gemmctl.device.cuda.calls import call
from gemmctl.errors import DeviceFailed


def ready(graph: Any, cleanup: ExitStack) -> Any:
    """A graph as it can be launched, freed by ``cleanup``.

    Raises DeviceFailed if the driver refuses it, or if it copies from the host's memory: what a
    library copied from at capture may be gone, or be something else, by the time of a launch.
    """
    if copies_from_host(graph):
        raise DeviceFailed("a graph of it would copy from host memory that it does not keep")
    made = call(driver.cuGraphInstantiate, graph, 0)
    cleanup.callback(driver.cuGraphExecDestroy, made)
    return made


def copies_from_host(graph: Any) -> bool:
    """Whether a graph reads the host's memory when it is launched."""
    _, count = call(driver.cuGraphGetNodes, graph)
    nodes, _ = call(driver.cuGraphGetNodes, graph, count)
    copy, host = (
        driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY,
        driver.CUmemorytype.CU_MEMORYTYPE_HOST,
    )
    return any(
        call(driver.cuGraphNodeGetType, node) == copy
        and call(driver.cuGraphMemcpyNodeGetParams, node).srcMemoryType == host
        for node in nodes
    )
