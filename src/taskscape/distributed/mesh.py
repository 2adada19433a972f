"""Many devices that share one fit: all that JAX sees, of this process or of several.

Tasks are split over the devices, parameters are the same on all of them, and what is summed over
tasks is summed over devices in one collective.
"""

import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from taskscape.distributed.engine import still_heard
from taskscape.errors import DataError, ProcessesError

Tree = TypeVar("Tree")
_LOST = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")
"""How JAX begins to tell of a collective that failed; a device without room is none of these."""
_AXIS = "tasks"
SPLIT = PartitionSpec(_AXIS)  # type: ignore[no-untyped-call]
"""Of arrays whose first axis is split over the devices."""
SAME = PartitionSpec()  # type: ignore[no-untyped-call]
"""Of arrays that are the same on all devices."""


# -- processes ----------------------------------------------------------------------------------


def join_processes(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Make this process one of several that share a fit; called before anything is computed.

    Without settings, those of Slurm, Open MPI or Kubernetes are used, as
    ``jax.distributed.initialize`` finds them; where there are none, this process stays alone, with
    all devices of its machine. From then on, an error that nothing handles ends this process at
    once, and the others with it.
    """
    given = (coordinator, processes, process)
    if any(value is not None for value in given) and None in given:
        raise DataError(
            f"coordinator={coordinator}, processes={processes}, process={process}: name all three, "
            "or none where Slurm, Open MPI or Kubernetes say them."
        )
    if coordinator is not None and not coordinator.rpartition(":")[2].isdigit():
        raise DataError(f"coordinator={coordinator!r} must be HOST:PORT.")
    if processes is not None and not 0 <= (process or 0) < processes:
        raise DataError(
            f"process={process} of processes={processes}: count them from 0 to {processes - 1}."
        )
    if jax.config.values.get("jax_cpu_collectives_implementation") in (None, "none"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    try:
        with still_heard():
            jax.distributed.initialize(*given)
    except ValueError as error:
        if coordinator is not None or "coordinator_address" not in str(error):
            raise DataError(f"the processes cannot find each other: {error}") from error
    except RuntimeError as error:
        raise DataError(
            f"process {process} cannot join the others at {coordinator}: {error}"
        ) from error
    if jax.distributed.is_initialized():
        sys.excepthook = _say_and_leave
        anyone(False)  # this connects them; from now on they notice at once if one is gone


def part_ways() -> None:
    """Wait for all processes; from then on each works alone."""
    jax.distributed.shutdown()  # type: ignore[no-untyped-call]


@contextmanager
def losses_named() -> Iterator[None]:
    """An error that says so, where another process has ended or cannot be reached."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises both for the same
        said = " ".join(str(error).split())
        if not (_LOST.match(said) and several_processes()):
            raise
        raise ProcessesError(
            f"process {jax.process_index()} of {jax.process_count()} cannot continue: another one "
            f"has ended, and then its own words say why, or cannot be reached ({said}). Start all "
            "of them again, with resume=True (--resume) to resume from a checkpoint."
        ) from error


def leave_at_once_if_joined(code: int) -> None:
    """End a process that failed, if it is one of several.

    At the end of Python, JAX would wait for the others, minutes long, while these wait for it.
    """
    if jax.distributed.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _say_and_leave(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    leave_at_once_if_joined(1)


def first_process() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return jax.process_index() == 0


def several_processes() -> bool:
    """Whether this process was joined with others."""
    return jax.process_count() > 1


def anyone(asks: bool) -> bool:
    """Whether any of the processes asks for something; all of them call this and wait."""
    return bool(np.any(_from_all(asks)))


def alike(text: str) -> bool:
    """Whether all processes have the same text."""
    number = zlib.crc32(text.encode()) >> 1
    return bool(np.all(_from_all(number) == number))


def _from_all(value: int) -> np.ndarray:
    if not several_processes():
        return np.array([value])
    from jax.experimental.multihost_utils import process_allgather

    with losses_named():
        return np.asarray(process_allgather(np.int32(value)))


def one_for_all(tree: Tree) -> Tree:
    """What the first process has, on all of them."""
    if not several_processes():
        return tree
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return jax.tree.map(jax.numpy.asarray, broadcast_one_to_all(tree))


def on_all_hosts(tree: Tree) -> Tree:
    """Arrays that are split over the devices, whole on every host."""
    if not several_processes():
        return jax.tree.map(np.asarray, tree)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(tree, tiled=True)


# -- devices ------------------------------------------------------------------------------------


def all_devices() -> Mesh | None:
    """All devices of all processes, those of a process side by side; None if there is but one."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), (_AXIS,)) if len(devices) > 1 else None


def own_places(mesh: Mesh) -> list[int]:
    """Where the devices of this process stand among all devices."""
    here = jax.process_index()
    return [i for i, device in enumerate(mesh.devices.flat) if device.process_index == here]


def split_over_devices(parts: Sequence[Tree], mesh: Mesh) -> Tree:
    """One tree, split over all devices, from the parts for the devices of this process.

    All parts, also those of other processes, have the same shapes.
    """
    devices = [mesh.devices.flat[i] for i in own_places(mesh)]

    def whole(*leaves: Any) -> jax.Array:
        own = [jax.device_put(leaf, on) for leaf, on in zip(leaves, devices, strict=True)]
        shape = (mesh.size * own[0].shape[0], *own[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, SPLIT), own)

    return jax.tree.map(whole, *parts)


def same_on_all(tree: Tree, mesh: Mesh | None) -> Tree:
    """Arrays that are the same in all processes, on all devices; as they are without a mesh."""
    if mesh is None:
        return tree
    devices = [mesh.devices.flat[i] for i in own_places(mesh)]
    everywhere = NamedSharding(mesh, SAME)

    def whole(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == everywhere:
            return leaf
        own = [jax.device_put(leaf, device) for device in devices]
        return jax.make_array_from_single_device_arrays(own[0].shape, everywhere, own)

    return jax.tree.map(whole, tree)


def on_one_device(tree: Tree) -> Tree:
    """Arrays that are the same on all devices, on the first of this process.

    Those that are on one already stay as they are: moved there by name, they need other programs.
    """
    here = jax.local_devices()[0]

    def own(leaf: jax.Array) -> jax.Array:
        alone = len(leaf.sharding.device_set) == 1
        return leaf if alone else jax.device_put(leaf.addressable_data(0), here)

    return jax.tree.map(own, tree)


def on_each_device(
    function: Callable[..., Tree], mesh: Mesh, given: tuple[PartitionSpec, ...], out: PartitionSpec
) -> Callable[..., Tree]:
    """A function that every device runs on its share of what is split, for ``jax.jit``."""
    # loops begin with what is the same on all devices, and continue with what is not
    return jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=out, check_vma=False)


def sum_over_devices(tree: Tree) -> Tree:
    """The sum of what the devices have, in one collective; within :func:`on_each_device`."""
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, _AXIS))  # type: ignore[no-untyped-call]
