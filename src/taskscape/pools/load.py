"""load_pool: one door to every kind of data."""

import difflib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.arrays import is_dataset, load_arrays, load_classes, load_dataset
from taskscape.pools.cache import cache_key, cached, read_pool
from taskscape.pools.encode import check_encoder, encode_pool
from taskscape.pools.folders import load_folder
from taskscape.pools.images import check_image_size
from taskscape.pools.join import (
    LookAlikeWarning,
    join_pools,
    joined_sample_names,
    pool_in_size,
    warn_of_look_alikes,
)
from taskscape.pools.known import POOLS, KnownSet
from taskscape.pools.mini_imagenet import leo_pickles, load_leo
from taskscape.pools.npz import load_npz
from taskscape.pools.omniglot import load_omniglot, looks_like_omniglot
from taskscape.pools.pool import PHOTOGRAPHS, ClassPool, parse_split, with_notes
from taskscape.pools.splits import drop_small_classes, named_splits
from taskscape.pools.tables import SUFFIXES as TABLES
from taskscape.pools.tables import is_table, load_table, parquet_files

_JOIN_VERSION = 2
"""Raise it whenever a change of the code changes joined pools: it is part of the cache key."""


if TYPE_CHECKING:
    Source: TypeAlias = Any
    """A name, a path, a pool, a pair (X, y), a dict of arrays, a data frame or a dataset."""
    File: TypeAlias = str | os.PathLike[str] | None
    Text: TypeAlias = str | None
    Texts: TypeAlias = Sequence[str] | np.ndarray | None
    ByClass: TypeAlias = Texts | Mapping[str, str | None] | str | os.PathLike[str]
    Number: TypeAlias = int | None
    Flag: TypeAlias = bool | None
    Size: TypeAlias = int | tuple[int, int] | None
    Encoder: TypeAlias = Callable[[Any], Any] | str | None
else:  # what is of another kind gets an error of ours, not that of a run-time type checker
    Source = File = Text = Texts = ByClass = Number = Flag = Size = Encoder = Any


def load_pool(
    source: Source,
    *,
    split: Text = None,
    encoder: Encoder = None,
    encoder_name: Text = None,
    encoder_batch: Number = 256,
    image_size: Size = None,
    colour: Flag = None,
    download: Flag = False,
    path: File = None,
    seed: Number = None,
    n_drawings: Number = None,
    name: Text = None,
    class_names: Texts = None,
    groups: ByClass = None,
    splits: ByClass = None,
    sample_names: Texts = None,
    min_samples: Number = None,
    skip_damaged: Flag = None,
    features_key: Text = None,
    labels_key: Text = None,
    label_column: Text = None,
    feature_columns: Texts = None,
    split_column: Text = None,
    group_column: Text = None,
    id_column: Text = None,
) -> ClassPool:
    """Open a pool of samples: a known data set, files, or arrays.

    Args:
        source: a known name such as ``"glyphs"`` (``taskscape data`` lists them); several joined by
            ``+``, such as ``"glyphs+omniglot"`` (see :func:`~taskscape.join_pools`); the path of a
            folder or zip of class folders of pictures, of an ``.npz``, ``.parquet``, ``.arrow``,
            ``.feather`` or ``.csv`` file, of a folder with Parquet files (one table, which may be
            larger than memory), with LEO's pickles or with a stored pool; a pair ``(X, y)``, of
            lists, numpy, JAX, pandas, SciPy's sparse matrices or torch's tensors; a dict of class
            name to array; a data frame of pandas, polars or pyarrow; a dataset of Hugging Face's
            `datasets`, or of scikit-learn; a dataset as PyTorch has them, with a pair ``(x, y)``
            for each number; or a pool. A known name wins over a folder of the same name: write
            ``"./omniglot"`` for the folder.
        split: keep only these classes, such as ``"train"`` or ``"train+val"``.
        encoder: a function from a float32 batch, pictures in [0, 1], to features (n, dims), or a
            fitted transformer of scikit-learn, which gets flat rows, or the name of one to import,
            ``"module:function"``. It is applied once and its features are cached; see
            :func:`~taskscape.pools.encode.encode_pool`.
        encoder_name: what to call it in the cache; by default its qualified name.
        encoder_batch: how many samples it gets at a time.
        image_size: size in pixels to bring pictures to, a number or (height, width); for any
            source that has pictures.
        colour: for pictures in folders and tables, and joined data: True, False, or None for colour
            if there is any.
        download: fetch a known data set that is not on this machine.
        path: where a known data set lies, if not in the folder of data sets.
        seed: for glyphs, letters and symbols, what decides how they are drawn.
        n_drawings: for the same, drawings of each character.
        name: what to call the pool; for arrays, npz, tables, folders and joined data.
        class_names: for a pair of arrays or a dataset, a name for each class.
        groups: for any source, the group of each class: a dict of class to group, the path of a CSV
            file with the columns class and group, or one per class in the order of
            ``pool.class_names``; for arrays also one per sample.
        splits: for any source, the split of each class, in the same forms. In a dict or a file, an
            empty split leaves a class out. :func:`taskscape.pools.split_classes` deals them out.
        sample_names: for the same, a name for each sample, which lists of tasks can use.
        min_samples: for any source, leave out classes with fewer samples; ``pool.info["notes"]``
            names them.
        skip_damaged: leave out pictures that cannot be read, and rows with missing or infinite
            numbers, instead of an error; for folders, Omniglot, tables, npz and arrays. Notes name
            them.
        features_key: for npz, the array of samples; else it is found by its name.
        labels_key: for npz, the array of labels.
        label_column: for tables, the column of labels; else it is found by its name.
        feature_columns: for tables, the columns of features.
        split_column: for tables, the column of splits.
        group_column: for tables, the column of groups.
        id_column: for tables, the column of names of the samples.

    An option that the kind of source does not take is an error.

    >>> load_pool({"a": [[0.0, 1.0]], "b": [[2.0, 3.0], [4.0, 5.0]]})
    ClassPool('arrays': 2 classes, 3 samples of 2 features)
    """
    options = {option: value for option, value in locals().items() if value is not None}
    for option in ("source", "split", "encoder", "encoder_name", "encoder_batch", "download"):
        options.pop(option, None)
    if split is not None:
        parse_split(str(split))
    check_encoder(encoder, encoder_name, encoder_batch)
    pool = _open(source, bool(download), options)
    if split is not None:
        pool = pool.split(split)
    if encoder is not None:
        return encode_pool(pool, encoder, encoder_name=encoder_name, encoder_batch=encoder_batch)
    raw = pool.is_images and len(pool.sample_shape) > 2
    known = PHOTOGRAPHS in pool.info.get("notes", ())
    return with_notes(pool, PHOTOGRAPHS) if raw and not known else pool


def _open(source: Any, download: bool, options: Mapping[str, Any]) -> ClassPool:
    if isinstance(source, str) and source in POOLS:
        return _open_known(POOLS[source], download, options)
    if isinstance(source, str) and len(parts := _parts(source)) > 1:
        return _open_joined(parts, download, options)
    if download:
        raise DataError(
            f"download=True is for known data sets ({', '.join(POOLS)}), not for {_shown(source)}."
        )
    if isinstance(source, ClassPool):
        return _call(lambda: source, options, "a pool")
    if isinstance(source, str | Path):
        return _open_path(source, options)
    if is_table(source):
        return _call(load_table, options, "a table", source)
    if isinstance(source, Mapping) and hasattr(source, "target"):  # a Bunch of scikit-learn
        options = {"class_names": source.get("target_names"), **options}
        pair = (source["data"], source["target"])
        return _call(load_arrays, options, "a data set of scikit-learn", *pair)
    if isinstance(source, Mapping):
        return _call(load_classes, options, "a dict of classes", source)
    if isinstance(source, tuple) and len(source) == 2:
        return _call(load_arrays, options, "a pair (X, y)", *source)
    if is_dataset(source):
        return _call(load_dataset, options, "a dataset of pairs (x, y)", source)
    raise DataError(
        f"source={_shown(source)}: expected a known name ({', '.join(POOLS)}), a path, a pair "
        "(X, y), a dict of class name to array, a data frame, a dataset (of a DataLoader, its "
        ".dataset), or a ClassPool."
    )


def _shown(source: Any) -> str:
    text = repr(source) if isinstance(source, str | Path) else f"a {type(source).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"


_FOR_ANY = ("splits", "groups", "image_size", "min_samples")
"""Options that any source takes: they are applied to the open pool, where its loader does not."""


def _call(
    load: Callable[..., ClassPool], options: Mapping[str, Any], what: str, *source: Any
) -> ClassPool:
    """Open a source after making sure that its loader, or any pool, takes these options."""
    own, later = _by_taker(load, options, what)
    pool = load(*source, **own)
    every = pool.class_names
    if "min_samples" in later:
        pool = drop_small_classes(pool, later["min_samples"])
    pool = named_splits(pool, later.get("splits"), later.get("groups"), dropped=every)
    size = check_image_size(later.get("image_size"))
    return pool if size is None else pool_in_size(pool, size)


def _by_taker(
    load: Callable[..., ClassPool], options: Mapping[str, Any], what: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that a loader takes, and those for the pool that it has opened."""
    parameters = inspect.signature(load).parameters.values()
    known = inspect.signature(load_pool).parameters
    accepted = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in known]
    own, later = {}, {}
    for name, value in options.items():
        by_name = name in _FOR_ANY and isinstance(value, Mapping | str | os.PathLike)
        if name in accepted and not by_name:
            own[name] = value
        elif name in _FOR_ANY:
            later[name] = value
        else:
            takes = ", ".join(dict.fromkeys((*accepted, *_FOR_ANY)))
            raise DataError(f"{name}=… is not an option for {what}; it takes {takes}.")
    return own, later


def _open_known(known: KnownSet, download: bool, options: Mapping[str, Any]) -> ClassPool:
    _by_taker(known.load, options, repr(known.name))  # before anything is downloaded
    if options.get("path") is None and known.locate() is None:
        if not download:
            raise known.missing()
        known.download()
    return _call(known.load, options, repr(known.name))


def _parts(source: str) -> list[str]:
    """What is joined by ``+``, where that is not part of the name of a file.

    >>> _parts("glyphs+omniglot")
    ['glyphs', 'omniglot']
    """
    pieces = source.split("+")
    for n in range(len(pieces), 0, -1):
        first = "+".join(pieces[:n])
        if first in POOLS or (first and expanded(first).exists()):
            return [first, *_parts("+".join(pieces[n:]))] if pieces[n:] else [first]
    return pieces


def _open_joined(parts: Sequence[str], download: bool, options: Mapping[str, Any]) -> ClassPool:
    """Several sources as one pool, which is cached as the pools of one source are."""
    names = [part if part in POOLS else Path(part).stem for part in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"two sources are called {twice!r}. Open each with load_pool and give them names with "
            "join_pools({'one': …, 'other': …})."
        )

    def load(
        *, name: Any = None, image_size: Any = None, colour: Any = None, skip_damaged: Any = None
    ) -> ClassPool:
        skip = {} if skip_damaged is None else {"skip_damaged": skip_damaged}
        pools = {
            source: _open(part, download and part in POOLS, {} if part in POOLS else skip)
            for source, part in zip(names, parts, strict=True)
        }
        stamps = {source: pool.fingerprint for source, pool in pools.items()}
        key = cache_key(_JOIN_VERSION, list(stamps.items()), name, image_size, colour)

        def make() -> ClassPool:
            with warnings.catch_warnings():  # said below, of a pool from the cache too
                warnings.simplefilter("ignore", LookAlikeWarning)
                return join_pools(pools, name=name, image_size=image_size, colour=colour)

        joined = replace(cached("joined", key, make), sample_names=joined_sample_names(pools))
        warn_of_look_alikes(joined)
        return joined

    return _call(load, options, "joined data")


def _open_path(source: str | Path, options: Mapping[str, Any]) -> ClassPool:
    path = expanded(source)
    if not path.exists():
        raise _not_found(source, path)
    if path.is_dir():
        return _open_folder(path, options)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _call(load_npz, options, "an npz file", path)
    if suffix in TABLES:
        return _call(load_table, options, "a table", path)
    if suffix == ".zip":
        return _open_pictures(path, options, "a zip of pictures")
    hints = {
        ".npy": "A .npy holds no labels: pass (np.load(path), y), or save both with np.savez.",
        ".pkl": "Pickles are read only as LEO's train_embeddings.pkl and so on: give their folder.",
    }
    raise DataError(
        f"source={_shown(source)}: cannot open a {suffix or 'file without an ending'}; expected "
        f"a folder, .npz, .zip, {', '.join(TABLES)}. {hints.get(suffix, '')}".rstrip()
    )


def _open_folder(path: Path, options: Mapping[str, Any]) -> ClassPool:
    if (path / "pool.json").is_file() and (path / "samples.npy").is_file():
        return _call(lambda: read_pool(path), options, "a stored pool")
    if leo_pickles(path):
        return _call(load_leo, options, "a folder of LEO's pickles", path)
    if parquet_files(path):
        return _call(load_table, options, "a folder of tables", path)
    return _open_pictures(path, options, "a folder of pictures")


def _open_pictures(path: Path, options: Mapping[str, Any], what: str) -> ClassPool:
    if not looks_like_omniglot(path):
        return _call(load_folder, options, what, path)
    return _call(partial(load_omniglot, path=path), options, "Omniglot")


def _not_found(source: str | Path, path: Path) -> DataError:
    known = list(POOLS)
    folded = str(source).lower().replace("-", "_").replace("imagenet", "_imagenet")
    near = difflib.get_close_matches(folded.replace("__", "_"), known, n=1, cutoff=0.6)
    if not near and path.parent.is_dir():
        beside = sorted(child.name for child in path.parent.iterdir())
        near = [str(path.parent / n) for n in difflib.get_close_matches(path.name, beside, n=1)]
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return DataError(
        f"source={_shown(source)} is neither a known data set ({', '.join(known)}) nor an existing "
        f"path (looked for {path.absolute()}).{hint}"
    )
