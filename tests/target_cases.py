"""Sources in three places, and a group beside one of them to be the target."""

import numpy as np

from taskscape.pools import ClassPool

DIMS = 6


def mixed_pool(seed: int = 0) -> ClassPool:
    """Three groups of classes in three places; another group for testing, beside the first."""
    rng = np.random.default_rng(seed)
    names, groups, splits, classes = [], [], [], {}
    for g, (group, place) in enumerate(
        {"right": 8, "left": 0, "down": -8, "near left": 0.5}.items()
    ):
        for c in range(6):
            name = f"{group} {c}"
            middle = place + rng.normal(size=(1, DIMS))
            classes[name] = (middle + 0.3 * rng.normal(size=(12, DIMS))).astype(np.float32)
            names.append(name)
            groups.append(group)
            splits.append("test" if g == 3 else "train")
    return ClassPool.from_classes(classes, name="mixed", groups=groups, splits=splits)
