"""An npz file of samples and labels, under any sensible key names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.arrays import as_numpy, clean_labels, load_arrays
from taskscape.pools.cache import cache_key, cached, file_stamp
from taskscape.pools.pool import SPLITS, ClassPool, few_names, split_named

_VERSION = 3
_ROLES: dict[str, tuple[str, ...]] = {
    "samples": (
        "features", "x", "data", "embeddings", "images", "samples", "feature", "embedding", "image"
    ),
    "labels": ("labels", "label", "y", "targets", "target"),
    "class_names": ("class_names", "class_name", "names", "label_names", "target_names"),
    "splits": ("class_split", "class_splits", "split", "splits"),
    "groups": ("class_group", "class_groups", "group", "groups"),
    "sample_names": ("sample_names", "sample_name", "ids", "filenames", "file_names", "paths"),
}  # fmt: skip
_ROLE_OF = {key: role for role, keys in _ROLES.items() for key in keys}


def load_npz(
    path: str | Path,
    *,
    name: Any = None,
    features_key: Any = None,
    labels_key: Any = None,
    skip_damaged: Any = False,
) -> ClassPool:
    """Open an npz of samples and labels.

    Understood are samples (``features``, ``X``, ``data``, ``embeddings``, ``images``, ``samples``),
    labels (``labels``, ``label``, ``y``, ``targets``), and optionally ``class_names``,
    ``class_split`` and ``class_group``, per class or per sample; or a pair of arrays for each
    split, such as ``X_train, y_train, X_test, y_test``. Splits are of classes: no class may be
    in two. ``features_key`` and ``labels_key`` name the arrays that are called something else.
    ``sample_names``, ``ids`` or ``filenames`` name the samples, for lists of tasks.
    """
    path = expanded(path)
    name = path.stem if name is None else str(name)
    chosen = {"samples": features_key, "labels": labels_key}
    skip = check_flag(skip_damaged, "skip_damaged")
    key = cache_key("npz", _VERSION, file_stamp(path), name, chosen, skip)
    return cached("npz", key, lambda: _read(path, name, chosen, skip))


def _read(path: Path, name: str, chosen: Mapping[str, Any], skip_damaged: bool) -> ClassPool:
    with path.open("rb") as file:
        try:
            arrays = np.load(file, allow_pickle=False)
        except Exception as error:  # damaged archives raise nearly anything
            raise DataError(
                f"{path} is not a readable npz file ({error}); it may be cut short. Write it again."
            ) from error
        if not hasattr(arrays, "files"):
            raise DataError(f"{path} holds a single array and no labels. Save both with np.savez.")
        whole, parts, unused = _find_keys(path, list(arrays), chosen)
        by_role: dict[str, Any] = {r: _array(path, arrays, key) for r, key in whole.items()}
        by_split = {
            split: {role: _array(path, arrays, key) for role, key in part.items()}
            for split, part in parts.items()
        }
    by_sample = not any(key.lower().startswith("class") for key in whole.values())
    by_role |= join_splits(path, by_split) if by_split else {}
    samples, labels = by_role.pop("samples"), by_role.pop("labels")
    return load_arrays(
        samples, labels, name=name, info={"source": str(path), "unused_keys": unused},
        by_sample=by_sample, skip_damaged=skip_damaged, **by_role,
    )  # fmt: skip


def _array(path: Path, arrays: Any, key: str) -> Shaped[np.ndarray, "..."]:
    try:
        array = arrays[key]
    except Exception as error:  # damaged archives raise nearly anything
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path}: {key!r} holds Python objects, which would need pickle and are not read. "
                "Save it as plain numbers or text, such as np.array(names, dtype=str)."
            ) from error
        raise DataError(
            f"{path}: {key!r} is damaged or cut short ({error}). Write the file again."
        ) from error
    return as_numpy(array, f"{path}: {key}")


def _find_keys(
    path: Path, names: list[str], chosen: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, dict[str, str]], list[str]]:
    """Which key holds what: for the file as a whole, and for each split; and keys without use."""
    whole: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {}
    unused = []
    for role, named in chosen.items():
        if named is not None and named not in names:
            raise DataError(f"{path} has no key {named!r}; it has {few_names(names, 12)}.")
        if named is not None:
            whole[role] = named
    for key in names:
        split, meant = _meaning(key)
        if key in whole.values() or (meant is not None and chosen.get(meant) is not None):
            continue
        if meant is None:
            unused.append(key)
            continue
        place = whole if split is None else parts.setdefault(split, {})
        if meant in place:
            raise DataError(
                f"{path}: {place[meant]!r} and {key!r} could both be the {meant}. "
                "Keep one, or say which with features_key=… and labels_key=…"
            )
        place[meant] = key
    _check(path, whole, parts, names)
    return whole, parts, unused


def _meaning(key: str) -> tuple[str | None, str | None]:
    """The split and the role that a key such as ``X_train`` or ``class_names`` stands for."""
    word = key.lower()
    if word in _ROLE_OF:
        return None, _ROLE_OF[word]
    for split_word, rest in (word.rpartition("_")[::-2], word.partition("_")[::2]):
        split = split_named(split_word)
        if split is not None and _ROLE_OF.get(rest) in ("samples", "labels"):
            return split, _ROLE_OF[rest]
    return None, None


def _check(
    path: Path, whole: Mapping[str, str], parts: Mapping[str, Mapping[str, str]], names: list[str]
) -> None:
    missing = [role for role in ("samples", "labels") if role not in whole]
    if parts and (len(missing) < 2 or any(len(part) < 2 for part in parts.values())):
        raise DataError(
            f"{path}: samples and labels of splits come in pairs such as X_train, y_train, and not "
            f"besides those of the whole. Found {few_names(names, 12)}."
        )
    if missing and not parts:
        raise DataError(
            f"{path} has no {missing[0]} under a known key: found {few_names(names, 12)}; expected "
            f"one of {few_names(_ROLES[missing[0]][:6], 6)}, or pairs such as X_train, y_train. "
            f"Or name it with {'features_key' if missing[0] == 'samples' else 'labels_key'}=…"
        )


def join_splits(path: Path, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One pair of arrays, and the split of every sample, from a pair per split."""
    splits = [s for s in SPLITS if s in parts]
    samples = [parts[s]["samples"] for s in splits]
    labels = [clean_labels(parts[s]["labels"], f"the {s} labels") for s in splits]
    for split, X, y in zip(splits, samples, labels, strict=True):
        if len(X) != len(y):
            raise DataError(f"{path}: {split!r} has {len(X)} samples and {len(y)} labels.")
    kinds = {(part.shape[1:], part.dtype.kind == "u") for part in samples}
    if len(kinds) > 1:
        raise DataError(
            f"{path}: the splits have samples of different shape or type: "
            f"{', '.join(f'{p.shape[1:]} {p.dtype}' for p in samples)}."
        )
    return {
        "samples": np.concatenate(samples),
        "labels": np.concatenate(labels),
        "splits": np.repeat(splits, [len(y) for y in labels]),
    }
