"""load_pool: one door to every kind of data."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from taskscape.errors import DataError
from taskscape.pools.arrays import load_arrays, load_classes
from taskscape.pools.cache import read_pool
from taskscape.pools.encode import check_encoder, encode_pool
from taskscape.pools.folders import load_folder
from taskscape.pools.known import KNOWN, KnownSet
from taskscape.pools.mini_imagenet import has_leo_pickles, load_leo
from taskscape.pools.npz import load_npz
from taskscape.pools.omniglot import load_omniglot, looks_like_omniglot
from taskscape.pools.pool import ClassPool, parse_split
from taskscape.pools.tables import SUFFIXES as TABLES
from taskscape.pools.tables import load_table

__all__ = ["KNOWN", "KnownSet", "load_pool"]


def load_pool(
    source: Any,
    *,
    split: Any = None,
    encoder: Any = None,
    encoder_name: Any = None,
    encoder_batch: Any = 256,
    image_size: Any = None,
    colour: Any = None,
    download: Any = False,
    **options: Any,
) -> ClassPool:
    """Open a pool of samples: a known data set, files, or arrays.

    Args:
        source: a known name (``"glyphs"``, ``"omniglot"``, ``"mini_imagenet"``); the path of a
            folder or zip of class folders of pictures, of an ``.npz``, ``.parquet``, ``.arrow`` or
            ``.feather`` file, of a folder with LEO's pickles or with a stored pool; a pair
            ``(X, y)``; a dict of class name to array; or a pool. A known name wins over a folder of
            the same name: write ``"./omniglot"`` for the folder.
        split: keep only these classes, such as ``"train"`` or ``"train+val"``.
        encoder: a function from a float32 batch, pictures in [0, 1], to features (n, dims). It
            is applied once and its features are cached; see
            :func:`~taskscape.pools.encode.encode_pool`.
        encoder_name: what to call it in the cache; by default its qualified name.
        encoder_batch: how many samples it gets at a time.
        image_size: size in pixels to bring pictures to, a number or (height, width).
        colour: for folders of pictures: True, False, or None for colour if there is any.
        download: fetch a known data set that is not on this machine.
        options: what else the kind of source takes: glyphs ``seed, n_drawings``; omniglot
            ``rotations, path``; mini_imagenet ``path``; arrays ``class_names, groups, splits,
            name``; npz ``features_key, labels_key, name``; tables ``label_column,
            feature_columns, split_column, group_column, name``; folders ``name``.

    >>> load_pool({"a": [[0.0, 1.0]], "b": [[2.0, 3.0], [4.0, 5.0]]})
    ClassPool('arrays': 2 classes, 3 samples of 2 features)
    """
    if split is not None:
        if not isinstance(split, str):
            raise DataError(f"split={split!r}: expected text such as 'train' or 'train+val'.")
        parse_split(split)
    check_encoder(encoder, encoder_name, encoder_batch)
    for option, value in (("image_size", image_size), ("colour", colour)):
        if value is not None:
            options[option] = value
    pool = _open(source, bool(download), options)
    if split is not None:
        pool = pool.split(split)
    if encoder is not None:
        pool = encode_pool(pool, encoder, encoder_name=encoder_name, encoder_batch=encoder_batch)
    return pool


def _open(source: Any, download: bool, options: Mapping[str, Any]) -> ClassPool:
    if isinstance(source, str) and source in KNOWN:
        return _open_known(KNOWN[source], download, options)
    if download:
        raise DataError(
            f"download=True is for known data sets ({', '.join(KNOWN)}), not for {_shown(source)}."
        )
    if isinstance(source, ClassPool):
        return _call(lambda: source, options, "a pool", ())
    if isinstance(source, str | Path):
        return _open_path(source, options)
    if isinstance(source, Mapping):
        return _call(load_classes, options, "a dict of classes", (source,))
    if isinstance(source, tuple) and len(source) == 2:
        return _call(load_arrays, options, "a pair (X, y)", source)
    raise DataError(
        f"source={_shown(source)}: expected a known name ({', '.join(KNOWN)}), a path, a pair "
        "(X, y), a dict of class name to array, or a ClassPool."
    )


def _shown(source: Any) -> str:
    text = repr(source) if isinstance(source, str | Path) else f"a {type(source).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"


def _call(
    load: Callable[..., ClassPool], options: Mapping[str, Any], what: str, source: tuple[Any, ...]
) -> ClassPool:
    """Open a source after making sure that its loader takes these options."""
    parameters = inspect.signature(load).parameters.values()
    accepted = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    unknown = [name for name in options if name not in accepted]
    if unknown:
        takes = f"it takes {', '.join(accepted)}" if accepted else "it takes no options"
        near = difflib.get_close_matches(unknown[0], accepted, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise DataError(f"{unknown[0]}=… is not an option for {what}; {takes}.{hint}")
    return load(*source, **options)


def _open_known(known: KnownSet, download: bool, options: Mapping[str, Any]) -> ClassPool:
    def load(**kept: Any) -> ClassPool:
        if kept.get("path") is None and known.locate() is None:
            if download:
                known.download()
            else:
                raise _missing(known)
        return known.load(**kept)

    load.__signature__ = inspect.signature(known.load)  # type: ignore[attr-defined]
    return _call(load, options, f"{known.name!r}", ())


def _missing(known: KnownSet) -> DataError:
    error = known.missing()
    if Path(known.name).exists():
        return DataError(
            f"{error} (There is a {known.name!r} in the current folder, but a known name wins over "
            f"it: write './{known.name}' to open that.)"
        )
    return error


def _open_path(source: str | Path, options: Mapping[str, Any]) -> ClassPool:
    path = Path(source).expanduser()
    if not path.exists():
        raise _not_found(source, path)
    if path.is_dir():
        return _open_folder(path, options)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _call(load_npz, options, "an npz file", (path,))
    if suffix in TABLES:
        return _call(load_table, options, "a table", (path,))
    if suffix == ".zip":
        return _open_pictures(path, options, "a zip of pictures")
    hints = {
        ".npy": "A .npy holds no labels: pass (np.load(path), y), or save both with np.savez.",
        ".csv": "Convert it to Parquet, for example with pyarrow or pandas.",
        ".pkl": "Pickles are read only as LEO's train_embeddings.pkl and so on: give their folder.",
    }
    raise DataError(
        f"source={_shown(source)}: cannot open a {suffix or 'file without an ending'}; expected "
        f"a folder, .npz, .zip, {', '.join(TABLES)}. {hints.get(suffix, '')}".rstrip()
    )


def _open_folder(path: Path, options: Mapping[str, Any]) -> ClassPool:
    if (path / "pool.json").is_file() and (path / "samples.npy").is_file():
        return _call(lambda: read_pool(path), options, "a stored pool", ())
    if has_leo_pickles(path):
        return _call(load_leo, options, "a folder of LEO's pickles", (path,))
    return _open_pictures(path, options, "a folder of pictures")


def _open_pictures(path: Path, options: Mapping[str, Any], what: str) -> ClassPool:
    if not looks_like_omniglot(path):
        return _call(load_folder, options, what, (path,))

    def load(*, rotations: Any = False, image_size: Any = 28) -> ClassPool:
        return load_omniglot(rotations=rotations, image_size=image_size, path=path)

    return _call(load, options, "Omniglot", ())


def _not_found(source: str | Path, path: Path) -> DataError:
    known = list(KNOWN)
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
