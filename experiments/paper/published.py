"""The numbers of the paper's figures, from the plots of its LaTeX source."""

from collections.abc import Mapping

__all__ = ["FIG2", "FIG3", "FIG3_RANDOM_INTERVALS", "FIG4"]

_FIG2: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "omniglot": {
        "distance": (0.998, 1.315, 1.737, 2.181, 2.629, 3.083, 3.532, 3.974, 4.438, 4.928),
        "protonet": (0.9707, 0.9707, 0.9696, 0.9682, 0.965, 0.9661, 0.9615, 0.9652, 0.9615, 0.9582),
        "maml": (0.975, 0.9723, 0.9714, 0.9702, 0.9686, 0.967, 0.965, 0.9657, 0.9597, 0.9564),
        "abml": (0.9801, 0.9752, 0.9749, 0.9725, 0.9667, 0.9657, 0.964, 0.9662, 0.9627, 0.9586),
        "bmaml": (0.9807, 0.979, 0.978, 0.9731, 0.9697, 0.9699, 0.9678, 0.9692, 0.9676, 0.9659),
        "vampire": (0.982, 0.979, 0.9728, 0.9715, 0.9687, 0.9677, 0.97, 0.9642, 0.9607, 0.9606),
    },
    "mini_imagenet": {
        "distance": (0.285, 0.461, 0.71, 0.955, 1.203, 1.441, 1.680, 1.931, 2.183, 2.393),
        "protonet": (0.5931, 0.5882, 0.5821, 0.5786, 0.5782, 0.5716, 0.5639, 0.554, 0.5414, 0.536),
        "maml": (0.5952, 0.5921, 0.5822, 0.5759, 0.5691, 0.5741, 0.5533, 0.5552, 0.5331, 0.5159),
        "abml": (0.6124, 0.6058, 0.6015, 0.5968, 0.5938, 0.5845, 0.5834, 0.5702, 0.5652, 0.5574),
        "bmaml": (0.6289, 0.6204, 0.6168, 0.606, 0.6009, 0.5942, 0.5896, 0.5788, 0.5872, 0.5614),
        "vampire": (0.6013, 0.5995, 0.5998, 0.5925, 0.5921, 0.5939, 0.5867, 0.5946, 0.56, 0.5557),
    },
}  # fmt: skip
FIG2: Mapping[str, Mapping[str, tuple[tuple[float, float], ...]]] = {
    pool: {
        learner: tuple(zip(values["distance"], accuracies, strict=True))
        for learner, accuracies in values.items()
        if learner != "distance"
    }
    for pool, values in _FIG2.items()
}
"""By data set and learner, (mean distance, accuracy) of each bin; 5-way 1-shot."""

FIG3: Mapping[str, Mapping[str, float]] = {
    "nearest": {"protonet": 60.29, "maml": 61.09, "abml": 61.82, "bmaml": 62.52, "vampire": 61.47},
    "task2vec": {"protonet": 60.01, "maml": 61.17, "abml": 61.23, "bmaml": 61.98, "vampire": 61.05},
    "random": {"protonet": 58.58, "maml": 59.4, "abml": 59.75, "bmaml": 61.21, "vampire": 59.62},
}
"""By rule and learner, accuracy in %; 1,000 training tasks, 5-way 5-shot."""

FIG3_RANDOM_INTERVALS: Mapping[str, tuple[float, float]] = {
    "protonet": (57.33, 59.83),
    "maml": (58.11, 60.69),
    "abml": (58.69, 60.81),
    "bmaml": (60.11, 62.31),
    "vampire": (58.54, 60.70),
}
"""The 95 % intervals that the paper draws on its random choices, from 50 trials."""

FIG4: Mapping[tuple[str, int], Mapping[str, Mapping[int, float]]] = {
    ("maml", 5): {
        "random": {100: 37.41, 500: 55.12, 1000: 59.4, 2000: 63.24, 5000: 68.72, 10000: 69.94},
        "task2vec": {100: 42.33, 500: 55.17, 1000: 60.69, 2000: 63.73, 5000: 68.9, 10000: 70.14},
        "nearest": {100: 41.06, 500: 57.63, 1000: 61.09, 2000: 64.65, 5000: 69.42, 10000: 70.02},
    },
    ("protonet", 5): {
        "random": {100: 31.17, 500: 49.09, 1000: 58.58, 2000: 64.05, 5000: 70.94, 10000: 71.26},
        "task2vec": {100: 36.86, 500: 52.76, 1000: 61.87, 2000: 64.79, 5000: 71.54, 10000: 71.89},
        "nearest": {100: 38.12, 500: 53.67, 1000: 60.29, 2000: 65.4, 5000: 71.84, 10000: 71.68},
    },
    ("maml", 10): {
        "random": {100: 26.85, 500: 29.88, 1000: 34.02, 2000: 36.01, 5000: 37.42, 10000: 38.25},
        "task2vec": {100: 29.74, 500: 31.94, 1000: 35.97, 2000: 36.68, 5000: 37.65, 10000: 38.4},
        "nearest": {100: 31.07, 500: 33.11, 1000: 36.53, 2000: 37.44, 5000: 38.09, 10000: 38.64},
    },
    ("protonet", 10): {
        "random": {100: 22.08, 500: 28.21, 1000: 33.45, 2000: 35.02, 5000: 36.89, 10000: 38.07},
        "task2vec": {100: 26.01, 500: 30.4, 1000: 33.49, 2000: 35.75, 5000: 37.81, 10000: 38.15},
        "nearest": {100: 28.0, 500: 32.12, 1000: 35.26, 2000: 36.58, 5000: 37.61, 10000: 38.34},
    },
}
"""By learner and way, then rule, then number of training tasks: accuracy in %; 5-shot."""
