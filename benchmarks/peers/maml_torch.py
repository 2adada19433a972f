"""MAML in plain PyTorch, the peer of `benchmarks/meta.py`: same networks, tasks and mathematics.

Needs PyTorch and nothing of taskscape, so it can run in an environment of its own:

    pip install torch numpy
    python benchmarks/peers/maml_torch.py --out benchmarks/results/maml_torch.json
    python benchmarks/peers/maml_torch.py --quick     # the sizes of `meta.py --quick`

Second order: the loss of the queries is differentiated through all inner steps. ``loop`` goes
through the tasks of a batch one by one with `torch.autograd.grad(create_graph=True)`, ``vmap`` maps
them with `torch.func`.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.nn.functional as F  # type: ignore[import-not-found,unused-ignore]  # noqa: N812
from torch.func import grad, vmap  # type: ignore[import-not-found,unused-ignore]

WAY, SHOT, QUERIES, FEATURES, WIDTH, SCALE = 5, 5, 15, 64, 128, 8.0
INNER_RATE, LEARNING_RATE = 0.1, 1e-3
Weights = dict[str, Any]


def mlp_start(filters: int) -> Weights:
    """One hidden layer of 128 units and a small head."""
    del filters
    return {
        "W0": torch.randn(FEATURES, WIDTH) * (2 / FEATURES) ** 0.5,
        "b0": torch.zeros(WIDTH),
        "W1": 0.1 * torch.randn(WIDTH, WAY) * (2 / WIDTH) ** 0.5,
        "b1": torch.zeros(WAY),
    }


def mlp(w: Weights, x: Any) -> Any:
    """Logits of feature vectors."""
    return torch.relu(SCALE * x @ w["W0"] + w["b0"]) @ w["W1"] + w["b1"]


def conv4_start(filters: int) -> Weights:
    """Four convolutions with a gain and an offset for each channel, and a small head."""
    w: Weights = {}
    for i, channels in enumerate((1, filters, filters, filters)):
        w[f"kernel{i}"] = torch.randn(filters, channels, 3, 3) * (2 / (9 * channels)) ** 0.5
        w[f"gain{i}"] = torch.ones(filters)
        w[f"offset{i}"] = torch.zeros(filters)
    w["W"] = 0.1 * torch.randn(filters, WAY) * (2 / filters) ** 0.5
    w["b"] = torch.zeros(WAY)
    return w


def conv4(w: Weights, x: Any) -> Any:
    """Logits of images (n, 28, 28), normalised by the statistics of the set."""
    h = x[:, None]
    for i in range(4):
        h = F.conv2d(h, w[f"kernel{i}"], padding=1)
        mean, variance = h.mean((0, 2, 3), True), h.var((0, 2, 3), False, keepdim=True)
        h = (h - mean) * torch.rsqrt(variance + 1e-5)
        h = w[f"gain{i}"][:, None, None] * h + w[f"offset{i}"][:, None, None]
        h = F.max_pool2d(torch.relu(h), 2)
    return h.flatten(1) @ w["W"] + w["b"]


NETWORKS: dict[str, tuple[Callable[[int], Weights], Callable[[Weights, Any], Any], Any]] = {
    "mlp": (mlp_start, mlp, (FEATURES,)),
    "conv4": (conv4_start, conv4, (28, 28)),
}


def slopes(nll: Callable[..., Any], w: Weights, x: Any, y: Any) -> Weights:
    """Gradient by all weights, which can be differentiated again."""
    result = torch.autograd.grad(nll(w, x, y), list(w.values()), create_graph=True)
    return dict(zip(w, result, strict=True))


def task_loss(
    network: Callable[[Weights, Any], Any],
    steps: int,
    w: Weights,
    task: tuple[Any, ...],
    mapped: bool,
) -> Any:
    """Loss of the queries after steps of gradient descent on the support set."""
    support_x, support_y, query_x, query_y = task

    def nll(w: Weights, x: Any, y: Any) -> Any:
        return F.cross_entropy(network(w, x), y)

    for _ in range(steps):
        g = grad(nll)(w, support_x, support_y) if mapped else slopes(nll, w, support_x, support_y)
        w = {name: value - INNER_RATE * g[name] for name, value in w.items()}
    return nll(w, query_x, query_y)


def tasks_per_second(
    name: str, how: str, filters: int, batch: int, steps: int, seconds: float, device: str
) -> tuple[float, float]:
    """Meta-train for a while, after a first update that does not count; also by CPU time."""
    start, network, shape = NETWORKS[name]
    torch.manual_seed(0)
    weights = {k: v.to(device).requires_grad_() for k, v in start(filters).items()}
    optimiser = torch.optim.Adam(list(weights.values()), lr=LEARNING_RATE)
    y = [torch.arange(WAY).repeat_interleave(n) for n in (SHOT, QUERIES)]
    x = [torch.rand(batch, len(labels), *shape) for labels in y]
    together = [
        part.to(device) for i in (0, 1) for part in (x[i], y[i].expand(batch, -1).contiguous())
    ]

    def batch_loss(w: Weights) -> Any:
        if how == "vmap":
            return vmap(lambda *task: task_loss(network, steps, w, task, True))(*together).mean()
        each = [
            task_loss(network, steps, w, tuple(part[t] for part in together), False)
            for t in range(batch)
        ]
        return torch.stack(each).mean()

    def update() -> None:
        optimiser.zero_grad()
        batch_loss(weights).backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 10.0)
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()

    update()
    done, began, busy = 0, time.perf_counter(), time.process_time()
    while done < 3 or time.perf_counter() - began < seconds:
        update()
        done += 1
    took, busy = time.perf_counter() - began, time.process_time() - busy
    return done * batch / took, done * batch / busy


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, help="write the figures here as JSON")
    options.add_argument("--quick", action="store_true", help="the sizes of `meta.py --quick`")
    options.add_argument("--networks", default="mlp,conv4")
    options.add_argument("--threads", type=int, help="of the CPU; default: PyTorch's own")
    options.add_argument("--seconds", type=float, default=5.0, help="time for one measurement")
    args = options.parse_args()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    sizes = {"filters": 8, "batch": 2, "steps": 2} if args.quick else {}
    sizes = {"filters": 64, "batch": 4, "steps": 5, **sizes}
    figures: dict[str, Any] = {f"size: {name}": value for name, value in sizes.items()}
    for name in args.networks.split(","):
        for how in ("loop", "vmap"):
            rate, by_cpu = tasks_per_second(name, how, seconds=args.seconds, device=device, **sizes)
            figures[f"{name} maml float32 {how} tasks_per_second"] = rate
            figures[f"{name} maml float32 {how} tasks_per_cpu_second"] = by_cpu
            print(f"{name} {how}: {rate:.4g} tasks per second, {by_cpu:.4g} by CPU", flush=True)
    if args.out is not None:
        machine = {
            "cpu_cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "load_average": os.getloadavg()[0],
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
        }
        command = " ".join(["python", *sys.argv])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        kept = {"command": command, "seed": 0, "machine": machine, "figures": figures}
        args.out.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
