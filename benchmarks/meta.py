"""Speed of meta-training: five learners, two networks, three precisions, one and many trials.

    python benchmarks/meta.py --out benchmarks/results/meta_gpu.json              # on a GPU
    python benchmarks/meta.py --quick --out benchmarks/results/meta_cpu.json      # on a CPU

Every case trains on made-up 5-way 5-shot tasks (`meta_problem.py`) and is tested, in float32, on
classes that it has not seen. Cases that matter most come first; when the budget is spent, the rest
is left out and listed. Shares are of the rate that a large matrix product reaches in the same
precision on the same machine; the work is that of the products alone. Where others use the same
cores, ``tasks_per_cpu_second`` can be compared: it counts the seconds of this process alone.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from meta_problem import (
    HELD_OUT,
    LEARNERS,
    QUERIES,
    SHOT,
    WAY,
    draw_tasks,
    made_up_pool,
    networks,
    product_flops,
)
from record import keep, parser, peak_gigabytes, peak_gigabytes_on_device, product_rate

from taskscape.meta import Learner, TrainConfig, begin, make_learner
from taskscape.meta.episodes import TaskFeed, rows_of
from taskscape.meta.evaluation import score
from taskscape.meta.learner import without_numbers
from taskscape.meta.networks import PRECISIONS
from taskscape.meta.training import run_updates
from taskscape.tasks import TaskSet

SECONDS = 1.0
"""For the measurement of one case."""


@dataclass(frozen=True)
class Sizes:
    """How large the cases are."""

    trials: int = 8
    batch: int = 4
    updates: int = 200
    test_tasks: int = 512
    filters: int = 64
    inner_steps: int = 5
    product: int = 8192
    """Rows of the matrices whose product is the peer."""


QUICK = Sizes(trials=2, batch=2, updates=20, test_tasks=32, filters=8, inner_steps=2, product=1024)


@dataclass(frozen=True)
class Case:
    """One program: what is trained, in what precision, how many trials side by side."""

    network: str
    learner: str
    precision: str
    trials: int

    def __str__(self) -> str:
        return f"{self.network} {self.learner} {self.precision} {self.trials} trial(s)"


class Bench:
    """Runs cases; pools, tasks and counts of work are made once for each network or learner."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.sizes, self.seed = sizes, seed
        self.rates: dict[str, float] = {}
        self.work: dict[tuple[str, str], float] = {}
        self.data: dict[str, tuple[TaskSet, TaskSet, Any]] = {}

    def learner(self, name: str) -> Learner:
        settings = dict(LEARNERS[name])
        if "inner_steps" in settings:
            settings["inner_steps"] = self.sizes.inner_steps
        return make_learner(name, **settings)

    def tasks(self, network: str) -> tuple[TaskSet, TaskSet, Any]:
        """Tasks to train on, tasks to test on, and their samples on the device."""
        if network not in self.data:
            sizes = self.sizes
            pool = made_up_pool(networks(sizes.filters)[network].sample_shape, self.seed)
            train = draw_tasks(pool, "train", sizes.updates * sizes.batch, self.seed)
            test = draw_tasks(pool, "test", sizes.test_tasks, self.seed + 1)
            self.data[network] = train, test, jnp.asarray(pool.samples)
        return self.data[network]

    def run(self, case: Case) -> dict[str, float]:
        """Train and test one case."""
        sizes = self.sizes
        network, learner = networks(sizes.filters)[case.network], self.learner(case.learner)
        train, test, samples = self.tasks(case.network)
        config = TrainConfig(
            updates=sizes.updates, batch_size=sizes.batch, precision=case.precision
        )
        starts = list(range(self.seed, self.seed + case.trials))
        trials = begin(learner, network, config, n_way=WAY, seeds=starts)
        each = [TaskFeed(train, s).rows(0, sizes.updates * sizes.batch) for s in starts]
        rows = jax.tree.map(
            lambda *r: jnp.stack([a.reshape(sizes.updates, sizes.batch, *a.shape[1:]) for a in r]),
            *each,
        )
        fixed, numbers = without_numbers(learner)
        before = (numbers, config.pace(), samples, rows)
        after = (jnp.asarray(starts), trials.state, trials.opt_state, trials.step)
        began = time.perf_counter()
        lowered = run_updates.lower(fixed, case.precision, *before, sizes.updates, *after)
        traced = time.perf_counter()
        program = lowered.compile()
        compiled = time.perf_counter()
        jax.block_until_ready(program(*before, 1, *after))  # type: ignore[no-untyped-call]
        took = busy = float("inf")
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:  # the same training again and again; the best counts
            ready, worked = time.perf_counter(), time.process_time()
            states, _, _, losses = jax.block_until_ready(  # type: ignore[no-untyped-call]
                program(*before, sizes.updates, *after)
            )
            took = min(took, time.perf_counter() - ready)
            busy = min(busy, time.process_time() - worked)
        n_tasks = sizes.updates * sizes.batch * case.trials
        flops = n_tasks * self.flops_per_task(case.network, case.learner) / took
        accuracy = score(learner, states, case.trials, samples, rows_of(test), self.seed).accuracy
        return {
            "tasks_per_second": n_tasks / took,
            "tasks_per_cpu_second": n_tasks / busy,
            "updates_per_second": sizes.updates / took,
            "seconds_tracing": traced - began,
            "seconds_compiling": compiled - traced,
            "product_gigaflops_per_second": flops / 1e9,
            "share_of_product_rate": flops / self.rate(case.precision),
            "program_gigabytes": gigabytes_of(program),
            "last_loss": float(np.asarray(losses)[:, -10:].mean()),
            "held_out_accuracy": float(np.mean(accuracy)),
        }

    def rate(self, precision: str) -> float:
        if precision not in self.rates:
            self.rates[precision] = product_rate(self.sizes.product, *PRECISIONS[precision])
        return self.rates[precision]

    def flops_per_task(self, network: str, learner: str) -> float:
        if (network, learner) not in self.work:
            self.work[network, learner] = product_flops(
                self.learner(learner),
                networks(self.sizes.filters)[network],
                self.tasks(network)[0],
            )
        return self.work[network, learner]


def gigabytes_of(program: Any) -> float:
    """Memory that a compiled program takes, with its arguments and results."""
    need = program.memory_analysis()
    parts = (need.temp_size_in_bytes, need.argument_size_in_bytes, need.output_size_in_bytes)
    return sum(parts) / 2**30


def cases(chosen: list[str], learners: list[str], many: int) -> list[Case]:
    """All cases, in rounds: float32, less precision, a single trial."""
    rounds = [("float32", many), ("bfloat16", many), ("tf32", many), ("float32", 1)]
    if jax.default_backend() == "cpu":  # there is no tf32
        rounds.remove(("tf32", many))
    return [Case(n, a, p, t) for p, t in rounds for n in chosen for a in learners]


def expected_seconds(case: Case, took: dict[tuple[str, str], float]) -> float:
    """As long as the same learner took before, or else the slowest one with that network."""
    alike = [t for (network, _), t in took.items() if network == case.network]
    return took.get((case.network, case.learner), max(alike, default=0.0))


def main() -> None:
    options = parser(str(__doc__))
    options.add_argument("--quick", action="store_true", help="small sizes, for a CPU")
    options.add_argument("--networks", default="mlp,conv4")
    options.add_argument("--learners", default=",".join(LEARNERS))
    options.add_argument("--budget-seconds", type=float, default=180.0)
    args = options.parse_args()
    end = time.perf_counter() + args.budget_seconds
    sizes = QUICK if args.quick else Sizes()
    bench, took, left_out = Bench(sizes, args.seed), dict[tuple[str, str], float](), []
    figures: dict[str, Any] = {
        "tasks": f"{WAY}-way {SHOT}-shot, {QUERIES} queries a class, {HELD_OUT} test classes",
        **{f"size: {name}": value for name, value in vars(sizes).items()},
    }
    for case in cases(args.networks.split(","), args.learners.split(","), sizes.trials):
        expected = expected_seconds(case, took)
        if time.perf_counter() + expected > end:
            left_out.append(str(case))
            continue
        began = time.perf_counter()
        measured = bench.run(case)
        took[case.network, case.learner] = time.perf_counter() - began
        print(f"{case}: {', '.join(f'{k} {v:.4g}' for k, v in measured.items())}", flush=True)
        figures |= {f"{case} {name}": value for name, value in measured.items()}
    for precision, rate in bench.rates.items():
        figures[f"{precision} product_gigaflops_per_second"] = rate / 1e9
    for (network, learner), work in bench.work.items():
        figures[f"{network} {learner} product_megaflops_per_task"] = work / 1e6
    on_device = peak_gigabytes_on_device()
    if on_device is not None:
        figures["peak_device_gigabytes"] = on_device
    figures["peak_host_gigabytes"] = peak_gigabytes()
    figures["left out when the budget was spent"] = left_out
    keep(figures, args)


if __name__ == "__main__":
    main()
