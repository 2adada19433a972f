"""A user's own samples and labels: arrays, one array per class, or a dataset of pairs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from taskscape.arguments import check_flag, check_memory, refuse_masked
from taskscape.errors import DataError
from taskscape.pools.cache import room, rows_in_room
from taskscape.pools.images import check_image_size, images_in_shape
from taskscape.pools.pool import ClassPool, as_samples, left_out, one_split
from taskscape.progress import track


def as_numpy(values: Any, what: str) -> Shaped[np.ndarray, "..."]:
    """Anything array-like as numpy: lists, numpy, JAX, pandas, SciPy's sparse, torch's tensors."""
    if hasattr(values, "toarray") and hasattr(values, "nnz"):  # a sparse matrix of SciPy's
        needed = 2 * 4 * int(np.prod(values.shape, dtype=np.float64))
        what = f"{what}, a sparse matrix of shape {tuple(values.shape)}, when filled in,"
        remedy = "Shrink it first, for example with sklearn.decomposition.TruncatedSVD(256)."
        check_memory(needed, what, remedy)
        return np.asarray(values.astype(np.float32).toarray())
    for method in ("detach", "cpu"):  # a torch tensor, without importing torch
        if callable(getattr(values, method, None)):
            values = getattr(values, method)()
    try:
        array = np.asarray(refuse_masked(values, what))
    except TypeError:  # torch's bfloat16 has no numpy counterpart
        if not callable(getattr(values, "float", None)):
            raise
        array = np.asarray(values.float())
    except DataError:
        raise
    except ValueError as error:
        raise DataError(
            f"{what} is not an array ({error}); are the rows of equal length?"
        ) from error
    if array.ndim == 0:
        raise DataError(f"{what} is a single {type(values).__name__}, not an array of rows.")
    return array


def clean_labels(y: Any, what: str = "y") -> Shaped[np.ndarray, "rows"]:
    """Labels as a plain array of whole numbers or text, one per sample."""
    labels = as_numpy(y, what)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(
            f"{what} has shape {labels.shape}; expected one label per sample. One-hot labels "
            "become plain ones with .argmax(axis=1)."
        )
    if labels.dtype.kind == "O":
        if any(_is_missing(v) for v in labels):
            raise DataError(f"{what} has missing labels. Remove these samples.")
        texts = [v.decode() if isinstance(v, bytes) else v for v in labels]
        whole = all(isinstance(v, int | np.integer) for v in texts)
        named = [int(v) if whole else str(v) for v in texts]
        if len(set(named)) < len(set(texts)):
            raise DataError(
                f"{what} has different labels that read alike, such as 1 and '1'. Give them all as "
                "numbers, or all as text."
            )
        labels = np.array(named)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            whole_numbers = labels.astype(np.int64)
        if (whole_numbers != labels).any():
            raise DataError(
                f"{what} holds fractions or NaN: expected class labels, not regression values."
            )
        labels = whole_numbers
    if labels.dtype.kind not in "iubU":
        raise DataError(f"{what} has type {labels.dtype}; expected whole numbers or text.")
    return labels


def _is_missing(value: Any) -> bool:
    """Whether a label is None, NaN, or the NA of pandas, which cannot be compared."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def per_class(
    values: Any,
    what: str,
    labels: Shaped[np.ndarray, "classes"],
    index: Int[np.ndarray, "rows"],
    *,
    by_sample: bool = False,
) -> list[str]:
    """Names, groups or splits as one text for each distinct label.

    ``values`` may have an entry per class (in the order of the sorted labels, or indexed by whole-
    number labels) or per sample, if all samples of a class agree. ``by_sample`` says which is meant
    when there are as many samples as classes.
    """
    texts = [v.decode() if isinstance(v, bytes) else str(v) for v in as_numpy(values, what)]
    n_rows, n_classes = len(index), len(labels)
    if len(texts) == n_classes and not (by_sample and n_rows == n_classes):
        return texts
    if len(texts) == n_rows:
        value_of: dict[int, str] = {}
        for c, text in zip(index.tolist(), texts, strict=True):
            if value_of.setdefault(c, text) != text:
                raise DataError(
                    f"{what}: class {str(labels[c])!r} is in both {value_of[c]!r} and {text!r}. "
                    "Splits and groups are of classes, not of samples: give each class one, or, "
                    "where labels restart in each split, make them distinct."
                )
        return [value_of[c] for c in range(n_classes)]
    if labels.dtype.kind in "iu" and labels[0] >= 0 and labels[-1] < len(texts):
        return [texts[int(v)] for v in labels]
    raise DataError(
        f"{what} has {len(texts)} entries for {n_classes} classes and {n_rows} samples; "
        "give one per class or one per sample."
    )


def load_arrays(
    X: Any,
    y: Any,
    *,
    class_names: Any = None,
    groups: Any = None,
    splits: Any = None,
    sample_names: Any = None,
    name: Any = "arrays",
    skip_damaged: Any = False,
    info: Mapping[str, Any] | None = None,
    by_sample: bool = False,
    given_rows: Int[np.ndarray, "rows"] | None = None,
) -> ClassPool:
    """See :meth:`ClassPool.from_arrays`.

    ``groups`` and ``splits`` may also have an entry per sample, which is meant with ``by_sample``
    where there are as many samples as classes. ``skip_damaged`` leaves out samples that have NaN or
    infinite numbers. ``given_rows`` are the user's rows, where some have been left out.

    >>> load_arrays(np.zeros((4, 2)), ["cat", "dog", "cat", "dog"], splits=["train", "test"])
    ClassPool('arrays': 2 classes, 1 train, 1 test, 4 samples of 2 features)
    """
    name, skip_damaged = str(name), check_flag(skip_damaged, "skip_damaged")
    X, y = as_numpy(X, "X"), clean_labels(y)
    if len(X) != len(y):
        raise DataError(f"X has {len(X)} samples and y has {len(y)} labels; give one per sample.")
    if len(y) == 0:
        raise DataError(f"pool {name!r} has no samples.")
    X = channels_last(X)
    labels, index = np.unique(y, return_inverse=True)
    given = {"class_names": class_names, "groups": groups, "splits": splits}
    by_class = {"class_names": [str(label) for label in labels]} | {
        what: per_class(v, what, labels, index, by_sample=by_sample)
        for what, v in given.items()
        if v is not None
    }
    if sample_names is not None:
        sample_names = [str(value) for value in as_numpy(sample_names, "sample_names").tolist()]
        if len(sample_names) != len(y):
            raise DataError(
                f"sample_names has {len(sample_names)} names for {len(y)} samples; give one per "
                "sample."
            )
    order, notes = _in_class_order(X, index, by_class["class_names"], skip_damaged)
    if not len(order):
        raise DataError(f"all {len(X)} samples of pool {name!r} have NaN or infinite numbers.")
    counts = np.bincount(index[order], minlength=len(labels))
    kept, counts = np.flatnonzero(counts), counts[counts > 0]
    of_kept = {what: tuple(texts[c] for c in kept) for what, texts in by_class.items()}
    if "splits" in of_kept:
        of_kept["splits"] = tuple(map(one_split, of_kept["splits"]))
    as_they_are = len(order) == len(X) and bool((order[1:] > order[:-1]).all())
    return ClassPool(
        name=name,
        samples=as_samples(X if as_they_are else rows_in_room(X, order)),
        starts=np.cumsum(counts) - counts,
        counts=counts,
        info={**(info or {"source": "arrays"}), **({"notes": notes} if notes else {})},
        sample_names=None if sample_names is None else tuple(sample_names[r] for r in order),
        given_rows=order if given_rows is None else given_rows[order],
        **of_kept,
    )


def _in_class_order(
    X: Shaped[np.ndarray, "rows ..."],
    index: Int[np.ndarray, "rows"],
    class_names: list[str],
    skip_damaged: bool,
) -> tuple[Int[np.ndarray, "kept"], list[str]]:
    """The rows class by class, perhaps without damaged ones, and notes on what was left out."""
    order = np.argsort(index, kind="stable")
    if not skip_damaged or X.dtype.kind != "f":
        return order, []
    sound = np.isfinite(X.reshape(len(X), -1)).all(axis=1)
    lost = [f"row {row}" for row in np.flatnonzero(~sound)]
    left = np.bincount(index[sound], minlength=len(class_names))
    empty = [repr(name) for name, count in zip(class_names, left, strict=True) if count == 0]
    return order[sound[order]], [
        *left_out(lost, f"of {len(X):,} samples have NaN or infinite numbers"),
        *left_out(empty, f"of {len(left):,} classes had no other samples"),
    ]


def channels_last(X: Shaped[np.ndarray, "rows ..."]) -> Shaped[np.ndarray, "rows ..."]:
    """Pictures as (rows, height, width[, 3]), also those that come as torch has them."""
    channels = (1, 3)
    if X.ndim == 4 and X.shape[1] in channels and X.shape[3] not in channels:
        X = np.moveaxis(X, 1, 3)
    return X[..., 0] if X.ndim == 4 and X.shape[3] == 1 else X


def load_classes(
    classes: Mapping[Any, Any],
    *,
    groups: Any = None,
    splits: Any = None,
    name: Any = "arrays",
    skip_damaged: Any = False,
    info: Mapping[str, Any] | None = None,
) -> ClassPool:
    """A pool from a dict of class name to samples; ``groups`` and ``splits`` in its order.

    >>> load_classes({"a": np.zeros((3, 2)), "b": np.ones((4, 2))})
    ClassPool('arrays': 2 classes, 7 samples of 2 features)
    """
    if not classes:
        raise DataError(
            "the dict of classes is empty; give at least one class name and its samples."
        )
    names = [str(c) for c in classes]
    arrays = [as_numpy(v, f"class {c!r}") for c, v in zip(names, classes.values(), strict=True)]
    first = arrays[0]
    for c, array in zip(names, arrays, strict=True):
        if len(array) == 0:
            raise DataError(f"class {c!r} has no samples. Add some or drop the class.")
        if array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"class {c!r} has samples of shape {array.shape[1:]}, class {names[0]!r} of shape "
                f"{first.shape[1:]}; all samples need the same shape."
            )
        # Whether pixels run to 1 or to 255 is seen from all of them together.
        if array.ndim > 2 and array.dtype != first.dtype:
            raise DataError(
                f"class {c!r} has pixels of type {array.dtype}, class {names[0]!r} of type "
                f"{first.dtype}; convert them to one type."
            )
    y = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    return load_arrays(
        np.concatenate(arrays), y, name=name, class_names=names, groups=groups, splits=splits,
        info=info, skip_damaged=skip_damaged,
    )  # fmt: skip


# -- datasets as PyTorch has them: a length, and a pair (x, y) for each number below it ------------


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
    return load_arrays(
        X, labels, name=kind if name is None else name, class_names=names, groups=groups,
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
