"""A fit step whose tasks are split over devices: its time, and what goes over the wire.

    python benchmarks/mesh.py --out benchmarks/results/mesh_cpu.json

Strong scaling keeps the tasks of a step, weak scaling those of a device. Devices are simulated on
a CPU (they share its cores), processes talk over loopback. The collective is also timed alone, for
several numbers of floats, and counted in the compiled program.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
from record import keep, parser

_LAYOUTS = {"1 device": (1, 1), "2 devices": (1, 2), "2 processes": (2, 1)}
_TASKS = 256
_STEPS = 10
_FLOATS = (10_000, 1_000_000, 4_000_000)


def measure(processes: int, process: int, port: int) -> dict[str, Any]:
    """Figures of one layout, from one of its processes."""
    from taskscape.distributed.mesh import all_devices, join_processes

    if processes > 1:
        join_processes(f"127.0.0.1:{port}", processes, process)
    mesh = all_devices()
    figures = _steps("strong scaling", _TASKS, mesh)
    if mesh is not None:
        figures |= _steps("weak scaling", _TASKS * mesh.size, mesh)
        figures |= _collectives(mesh)
    return figures


def _steps(name: str, tasks: int, mesh: Any) -> dict[str, Any]:
    """The time of a step, and the collectives of its program."""
    from made_up import pool_and_themes

    from taskscape import sample_tasks
    from taskscape.distributed.mesh import same_on_all
    from taskscape.themes import steps
    from taskscape.themes.config import FitConfig
    from taskscape.themes.data import gather

    pool, prepared, themes = pool_and_themes(100, 100, 32, 4, 2, seed=0)
    drawn = sample_tasks(pool, tasks, n_way=(5, 10), n_shot=8, seed=0)
    shape = (tasks, drawn.max_way, drawn.max_shot)
    state = steps.init(themes, *np.asarray([np.zeros(32), np.ones(32)], np.float32))
    settings = FitConfig(2, 4).of_steps()
    if mesh is None:
        batch = gather(drawn, prepared, shape)
    else:
        state, batch = same_on_all(state, mesh), gather(drawn, prepared, shape, mesh=mesh)
    seconds = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        state, info = steps.step(state, batch, settings)
        float(info.elbo)
        seconds.append(time.perf_counter() - began)
    quickest = 1000 * min(seconds)
    figures: dict[str, Any] = {f"{name}: milliseconds of a step, the quickest": quickest}
    if mesh is not None:
        inferred = steps._infer(state.themes, batch, settings)
        program = steps._learn.lower(state, batch, inferred, settings).compile().as_text() or ""
        shapes = re.findall(r"= f32\[(\d+)\]\S* all-reduce\(", program)
        figures["collectives of a step"] = len(re.findall(r"all-reduce\(", program))
        figures["floats of a collective"] = [int(n) for n in shapes]
    return figures


def _collectives(mesh: Any) -> dict[str, Any]:
    """The collective alone."""
    import jax

    from taskscape.distributed.mesh import (
        SAME,
        SPLIT,
        on_each_device,
        own_places,
        split_over_devices,
    )
    from taskscape.distributed.mesh import sum_over_devices as summed

    figures = {}
    total = jax.jit(on_each_device(summed, mesh, (SPLIT,), SAME))
    for n in _FLOATS:
        own = [np.ones((1, n), np.float32) for _ in own_places(mesh)]
        values, seconds = split_over_devices(own, mesh), []
        for _ in range(_STEPS):
            began = time.perf_counter()
            total(values).block_until_ready()
            seconds.append(time.perf_counter() - began)
        figures[f"collective of {n:,} floats: milliseconds, the quickest"] = 1000 * min(seconds)
    return figures


def layout(processes: int, devices: int) -> dict[str, Any]:
    """Figures of one layout, from processes of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--one", str(processes), str(i), str(port)],
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    said = [child.communicate()[0] for child in children]
    return dict(json.loads(said[0].splitlines()[-1]))


def main() -> None:
    """Measure all layouts, each in processes of its own."""
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument(
        "--one", type=int, nargs=3, help="measure here: processes, process, port"
    )
    options = arguments.parse_args()
    if options.one is not None:
        print(json.dumps(measure(*options.one)))
        return
    figures = {}
    for name, (processes, devices) in _LAYOUTS.items():
        for what, value in layout(processes, devices).items():
            figures[f"{name}: {what}"] = value
    keep(figures, options)


if __name__ == "__main__":
    main()
