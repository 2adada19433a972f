"""Your own features: which source tasks are like a target task, and is the target unusual?

    python examples/own_features.py

Features are made up here; bring yours as an array (rows, dims) with a label per row.
"""

import numpy as np

from taskscape import (
    TaskThemes,
    load_pool,
    make_tasks,
    nearest,
    resemblance,
    retrieval,
    sample_tasks,
)


def main() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(6, 16)) * 3  # six kinds of image, of which every class is a mixture
    mixtures = rng.dirichlet(np.full(6, 0.4), size=60)
    which = np.stack([rng.choice(6, 30, p=mixture) for mixture in mixtures])
    X = (kinds[which] + rng.normal(size=(60, 30, 16))).reshape(-1, 16)
    y = np.repeat([f"class {c:02d}" for c in range(60)], 30)
    pool = load_pool((X, y), splits=["train"] * 48 + ["test"] * 12, name="mine")

    sources = sample_tasks(pool, 2000, split="train", n_way=5, n_shot=10, seed=0)
    model = TaskThemes().fit(sources)
    print(retrieval(pool, model).summary())  # how far to trust its distances

    target = make_tasks(
        pool, [["class 48", "class 50", "class 52", "class 54", "class 56"]], n_shot=10, seed=1
    )
    asked, known = model.embed(target), model.embed(sources)
    neighbours = nearest(asked, known, k=3)
    for i, distance in zip(neighbours.indices[0], neighbours.distances[0], strict=True):
        print(f"{distance:.2f}: {', '.join(sources.names(int(i)))}")
    print(resemblance(target, sources).summary())


if __name__ == "__main__":
    main()
