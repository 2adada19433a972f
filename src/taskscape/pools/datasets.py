"""Datasets as PyTorch has them: a length, and a pair (x, y) for each number below it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from taskscape.errors import DataError
from taskscape.pools.arrays import as_numpy, channels_last, labelled_pool
from taskscape.pools.cache import room
from taskscape.pools.images import check_image_size, images_in_shape
from taskscape.pools.pool import ClassPool, as_samples
from taskscape.progress import track


def is_dataset(source: Any) -> bool:
    """Whether something has a length and can be asked for its items, and is no array or text."""
    if isinstance(source, str | bytes | Mapping) or hasattr(source, "dtype"):
        return False
    return hasattr(source, "__len__") and hasattr(source, "__getitem__")


def load_dataset(
    dataset: Any,
    *,
    class_names: Any = None,
    groups: Any = None,
    splits: Any = None,
    sample_names: Any = None,
    name: Any = None,
    image_size: Any = None,
) -> ClassPool:
    """A pool of what a dataset gives: of torchvision, a ``Subset``, or any list of pairs (x, y).

    Its items are read once, one at a time, and kept as 8-bit pictures or as features. A picture is
    one of PIL's, or numbers (height, width), with channels last or first as torch has them, of
    whole numbers up to 255 or fractions from 0 to 1. ``classes`` of the dataset names whole-number
    labels. The number of an item is its row in what taskscape hands out (:meth:`TaskSet.rows`).

    >>> load_dataset([(np.zeros(2), "cat"), (np.ones(2), "dog"), (np.ones(2), "cat")])
    ClassPool('list': 2 classes, 3 samples of 2 features)
    """
    kind, size = type(dataset).__name__, check_image_size(image_size)
    if len(dataset) == 0:
        raise DataError(f"the {kind} has no items.")
    X: Any = None
    labels = []
    for i in track(range(len(dataset)), "reading the dataset"):
        pair = dataset[i]
        if not isinstance(pair, tuple | list) or len(pair) < 2:
            raise DataError(
                f"item {i} of the {kind} is a {type(pair).__name__}; expected a pair (x, y) of a "
                "sample and its label. Samples and labels that are apart are given as (X, y)."
            )
        x, y = _sample(pair[0], f"sample {i} of the {kind}", size), pair[1]
        labels.append(y.item() if getattr(y, "ndim", None) == 0 else y)
        if X is None:
            X = room((len(dataset), *x.shape), x.dtype)
        if x.shape != X.shape[1:]:
            raise DataError(
                f"sample {i} of the {kind} has shape {x.shape}, sample 0 has {X.shape[1:]}; all "
                "need the same. Of pictures, image_size=… brings them to one size."
            )
        X[i] = x
    names = class_names if class_names is not None else _class_names(dataset, labels)
    return labelled_pool(
        X, labels, name=kind if name is None else str(name), class_names=names, groups=groups,
        splits=splits, sample_names=sample_names, info={"source": f"a {kind}"},
    )  # fmt: skip


def _sample(x: Any, where: str, size: tuple[int, int] | None) -> Shaped[np.ndarray, "*shape"]:
    x = as_numpy(x, where)
    if x.ndim == 1:
        return as_samples(x[None])[0]
    x = channels_last(x[None])
    if x.dtype.kind == "f" and not (x.min() >= 0 and x.max() <= 1):
        raise DataError(  # of one picture alone, 0 to 255 cannot be told from a dark 0 to 1
            f"{where} has pixels from {x.min():g} to {x.max():g}; expected fractions from 0 to 1, "
            "or whole numbers up to 255. Leave Normalize out of its transform, or flatten its "
            "samples to features."
        )
    x = as_samples(x)
    return (x if size is None else images_in_shape(x, (*size, *x.shape[3:])))[0]


def _class_names(dataset: Any, labels: list[Any]) -> list[str] | None:
    """The names that a dataset, or the one that it is a ``Subset`` of, has for its labels."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = list(getattr(dataset, "classes", ()))
    if not all(isinstance(y, int | np.integer) and 0 <= y < len(names) for y in labels):
        return None
    return [str(names[y]) for y in sorted(set(labels))]
