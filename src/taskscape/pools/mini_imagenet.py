"""mini-ImageNet as features: an npz, or the pickled embeddings published with LEO.

O. Vinyals et al., "Matching networks for one shot learning" (2016); the split is that of S. Ravi
and H. Larochelle (2017): 64 training, 16 validation and 20 test classes of 600 images. LEO: A. A.
Rusu et al., "Meta-learning with latent embedding optimization" (2019).
https://github.com/deepmind/leo
"""

import math
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from taskscape.arguments import check_memory
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.arrays import clean_labels, load_arrays
from taskscape.pools.cache import cache_key, cached, data_dir, file_stamp
from taskscape.pools.npz import join_splits, load_npz
from taskscape.pools.pool import SPLITS, ClassPool

_VERSION = 1
_PLACES = (
    "",
    "mini_imagenet",
    "miniImageNet",
    "mini_imagenet/center",
    "miniImageNet/center",
    "embeddings/miniImageNet/center",
)
_EXPECTED = "a mini_imagenet*.npz, or train_, val_ and test_embeddings.pkl"


def _npz_files() -> list[Path]:
    folders = (data_dir(), data_dir() / "mini_imagenet")
    return sorted(file for folder in folders for file in folder.glob("mini_imagenet*.npz"))


def leo_pickles(folder: Path) -> dict[str, Path]:
    """LEO's embeddings in a folder, by the split that they are of."""
    files = {split: folder / f"{split}_embeddings.pkl" for split in SPLITS}
    return {split: file for split, file in files.items() if file.is_file()}


def locate_mini_imagenet() -> Path | None:
    """The npz, otherwise the folder of pickles, below the folder of known data sets."""
    files = _npz_files()
    if files:
        return files[0]
    folders = (data_dir() / place for place in _PLACES)
    return next((f for f in folders if len(leo_pickles(f)) == len(SPLITS)), None)


def load_mini_imagenet(*, path: Any = None) -> ClassPool:
    """Open mini-ImageNet features: an npz if there is one, otherwise LEO's pickles.

    An npz has ``features``, ``label``, ``class_name`` and ``class_split``. ``path`` names the npz
    or the folder of pickles where it lies elsewhere.
    """
    if path is None and len(_npz_files()) > 1:
        files = ", ".join(map(str, _npz_files()))
        raise DataError(f"several mini-ImageNet files: {files}. Say which with path=…")
    place = locate_mini_imagenet() if path is None else expanded(path)
    if place is None or not place.exists():
        at = data_dir() if place is None else place
        raise DataError(f"no mini-ImageNet at {at}: expected {_EXPECTED}.")
    if place.is_file():
        return load_npz(place, name="mini_imagenet")
    return load_leo(place, name="mini_imagenet")


def load_leo(folder: str | Path, *, name: Any = None) -> ClassPool:
    """Open the embeddings published with LEO: ``{train,val,test}_embeddings.pkl`` in a folder.

    They are pickles, so they are read by an unpickler that admits arrays and plain values only, and
    kept in our own format from then on. Classes are given by ``labels``; if those are numbers, they
    take the class names in ``keys`` where the two agree.
    """
    folder = expanded(folder)
    files = leo_pickles(folder)
    if not files:
        raise DataError(f"{folder} has none of train_, val_ and test_embeddings.pkl.")
    name = folder.name if name is None else str(name)
    key = cache_key("leo", _VERSION, [[s, file_stamp(f)] for s, f in files.items()], name)
    return cached("leo", key, lambda: _read(folder, files, name))


def _read(folder: Path, files: Mapping[str, Path], name: str) -> ClassPool:
    parts = {split: _read_one(file, split) for split, file in files.items()}
    whole = join_splits(folder, parts)
    X, y, info = whole.pop("samples"), whole.pop("labels"), {"source": str(folder)}
    return load_arrays(X, y, name=name, info=info, by_sample=True, **whole)


def _read_one(file: Path, split: str) -> dict[str, np.ndarray]:
    """The samples and labels of one split."""
    content = load_plain_pickle(file)
    if not isinstance(content, dict):
        raise DataError(f"{file} holds a {type(content).__name__}; expected a dict.")
    content = {k.decode() if isinstance(k, bytes) else str(k): v for k, v in content.items()}
    if "embeddings" not in content or not content.keys() & {"labels", "keys"}:
        keys = ", ".join(map(repr, sorted(content))) or "nothing"
        raise DataError(f"{file} has {keys}; expected 'embeddings', 'labels' and 'keys'.")
    embeddings = np.asarray(content["embeddings"])
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f":
        raise DataError(
            f"{file}: embeddings have shape {embeddings.shape} and type {embeddings.dtype}; "
            "expected a row of fractions per image."
        )
    return {"samples": embeddings, "labels": _class_names(file, split, content)}


def _class_names(file: Path, split: str, content: Mapping[str, Any]) -> Shaped[np.ndarray, "rows"]:
    from_keys = None
    if content.get("keys") is not None:
        # A key reads "image-class-file"; the class in it names what a number would not.
        parts = [str(k).split("-") for k in clean_labels(content["keys"], f"{file}: keys").tolist()]
        if all(len(words) >= 3 for words in parts):
            from_keys = np.array([words[1] for words in parts])
    if content.get("labels") is None:
        if from_keys is None:
            raise DataError(f"{file} has no labels, and its keys do not read 'image-class-file'.")
        return from_keys
    labels = clean_labels(content["labels"], f"{file}: labels")
    if labels.dtype.kind == "U":
        return labels
    if from_keys is not None and len(from_keys) == len(labels):
        pairs = set(zip(labels.tolist(), from_keys.tolist(), strict=True))
        if len(pairs) == len(set(labels.tolist())) == len(set(from_keys.tolist())):
            return from_keys
    # Numbers may start again in each file, so the split keeps them apart.
    return np.array([f"{split}/{label}" for label in labels.tolist()])


# -- arrays from pickles of unknown origin ------------------------------------------------------

# An ordinary unpickler calls whatever a file names. Here names outside a short list are refused,
# and the listed ones stand for code of this module, which checks the type of an array before numpy
# fills it: numpy trusts a pickled type, and a forged one would let it read any memory.
_PLAIN_TYPE = re.compile(r"b1|[iu][1248]|f[248]|[SU]\d{1,6}|O[48]?")


class _Dtype:
    """Stands for ``numpy.dtype``: plain numbers, text and objects; no fields, no subarrays."""

    def __init__(self, code: Any) -> None:
        self.code, self.order = _text(code).lstrip("<>=|"), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])
        if any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("an array type has fields")

    def real(self) -> np.dtype:
        if not _PLAIN_TYPE.fullmatch(self.code) or self.order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError(f"array type {(self.order + self.code)[:20]!r}")
        return np.dtype(object if self.code[0] == "O" else self.order + self.code)


class _Array(np.ndarray):
    """An array that a pickle fills; ``np.asarray`` makes a plain one of it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        real = dtype.real()
        if real.hasobject and len(raw) != math.prod(shape):  # numpy does not check this
            raise pickle.UnpicklingError(f"{len(raw)} objects for shape {shape}")
        checked: Any = (1, shape, real, bool(fortran), raw)
        super().__setstate__(checked)


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


def _scalar(dtype: Any, raw: Any) -> Any:
    return np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype.real())[0]


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    array = np.frombuffer(raw, dtype.real()).reshape(shape, order="F" if order == "F" else "C")
    return array if axes is None else array.transpose(axes)


# No classes of this module: a pickle could set their attributes, for the whole process.
_ADMITTED: dict[str, Any] = {
    "_codecs.encode": str.encode,
    "collections.OrderedDict": dict,
    "numpy.dtype": lambda code, *_: _Dtype(code),
    "numpy.ndarray": None,  # only ever an argument of _reconstruct
    "numpy.core.multiarray._reconstruct": lambda *_: np.ndarray.__new__(_Array, (0,)),
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _from_buffer,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        place = f"{module}.{name}".replace("numpy._core.", "numpy.core.")  # its name in numpy 2
        if place not in _ADMITTED:
            raise DataError(
                f"asks for {module[:99]}.{name[:99]}, which plain data does not need: refused, and "
                "nothing of it was run. If you trust the file, convert it to .npz yourself."
            )
        return _ADMITTED[place]


def load_plain_pickle(path: Path) -> Any:
    """Plain values and arrays from a pickle, also one of Python 2; anything else is refused."""
    try:
        size = path.stat().st_size
        check_memory(2 * size, f"of {size:,} bytes", "Convert it to .npz on a larger machine.")
        with path.open("rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{path} {error}") from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(
            f"{path} is not a readable pickle of arrays ({type(error).__name__}: "
            f"{str(error)[:200]}); it may be cut short. Fetch it again."
        ) from error
