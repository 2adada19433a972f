"""Drawing tasks: a million unique ones, and the rows of their samples.

python benchmarks/tasks.py --out benchmarks/results/tasks.json
"""

import random

import numpy as np
from record import keep, parser, peak_gigabytes, seconds

from taskscape import ClassPool, sample_tasks

CLASSES, SAMPLES, WAY, SHOT = 964, 20, 5, 16


def plain_loop(n: int, seed: int) -> None:
    """What people write: a Python loop over tasks with a set of those seen."""
    rng = random.Random(seed)
    seen: set[tuple[int, ...]] = set()
    while len(seen) < n:
        classes = tuple(sorted(rng.sample(range(CLASSES), WAY)))
        if classes not in seen:
            seen.add(classes)
            for _ in classes:
                rng.sample(range(SAMPLES), SHOT)


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    pool = ClassPool.from_arrays(
        np.zeros((CLASSES * SAMPLES, 1), np.float32), np.repeat(np.arange(CLASSES), SAMPLES)
    )
    before = peak_gigabytes()
    built = {}

    def draw() -> None:
        built["tasks"] = sample_tasks(
            pool, 1_000_000, n_way=WAY, n_shot=SHOT, unique=True, seed=args.seed
        )

    drawing = seconds(draw)
    tasks = built["tasks"]
    reading = seconds(lambda: [None for _ in tasks[:100_000].batches(4096)])
    loop = seconds(lambda: plain_loop(20_000, args.seed))
    keep(
        {
            "unique 5-way tasks of 964 classes": len(tasks),
            "seconds to draw them": drawing,
            "megabytes of the task set": sum(
                a.nbytes for a in (tasks.classes, tasks.keys, tasks.n_shot)
            )
            / 1e6,
            "gigabytes above the start, at most": peak_gigabytes() - before,
            "tasks/s, drawing classes": len(tasks) / drawing,
            "tasks/s, drawing 16 sample rows per class": 100_000 / reading,
            "tasks/s of a plain Python loop doing both": 20_000 / loop,
            "ratio, both against the loop": (loop / 20_000) / (drawing / 1e6 + reading / 1e5),
        },
        args,
    )


if __name__ == "__main__":
    main()
