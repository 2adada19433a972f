"""The data sets known by name: what they are, where they lie, and how to get them.

They are fetched on request only.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskscape.errors import DataError
from taskscape.pools.cache import data_dir
from taskscape.pools.mini_imagenet import load_mini_imagenet, locate_mini_imagenet
from taskscape.pools.omniglot import load_omniglot, locate_omniglot
from taskscape.pools.pool import ClassPool
from taskscape.progress import track

_OMNIGLOT = "https://github.com/brendenlake/omniglot/raw/master/python"


@dataclass(frozen=True, repr=False)
class KnownSet:
    """A data set known by name."""

    name: str
    description: str
    locate: Callable[[], Path | None]
    """Where it lies on this machine; None if it is missing."""
    load: Callable[..., ClassPool]
    """Opens it; its keyword arguments are the options that ``load_pool`` takes for it."""
    how_to_get: str
    """What to do if it is missing."""
    files: Mapping[str, str] | None = None
    """The addresses that :meth:`download` fetches, each with its checksum as ``md5:digest``; None
    if the data set cannot be fetched automatically."""

    def __repr__(self) -> str:
        return f"KnownSet({self.name!r}: {self.description})"

    def download(self) -> Path:
        """Fetch the data set into the folder of known data sets; nothing is fetched twice."""
        place = self.locate()
        if place is not None:
            return place
        if self.files is None:
            raise DataError(f"{self.name!r} cannot be downloaded automatically. {self.how_to_get}")
        return fetch(self.files, data_dir() / self.name)

    def missing(self) -> DataError:
        """The error that says where the data set was looked for, and how to get it."""
        hint = f"(There is a {self.name!r} in the current folder, but a known name wins over it: "
        hint += f"write './{self.name}' to open that.)"
        return DataError(
            f"{self.name!r} is a known data set but is not on this machine: looked in {data_dir()} "
            f"and {data_dir() / self.name} (the environment variable TASKSCAPE_DATA names the "
            f"folder). {self.how_to_get} {hint if Path(self.name).exists() else ''}".rstrip()
        )


def fetch(files: Mapping[str, str], folder: Path) -> Path:
    """Download files into a folder; those already there with the right checksum are kept.

    A file appears under its name only when it is complete and its checksum is right.
    """
    import pooch  # takes a while to import, and few runs download anything

    existed = folder.exists()
    pooch.get_logger().setLevel("WARNING")
    for url, checksum in track(files.items(), "downloading"):
        name = url.rsplit("/", 1)[-1]
        try:
            pooch.retrieve(
                url, checksum, name, path=folder, downloader=pooch.HTTPDownloader(timeout=60)
            )
        except Exception as error:  # no network, no such page, no space, a wrong checksum …
            if not existed and folder.exists() and not any(folder.iterdir()):
                folder.rmdir()
            raise DataError(
                f"downloading {url} failed ({type(error).__name__}: {error}). Try again, or fetch "
                f"it by other means and put it at {folder / name} ({checksum.replace(':', ' ')})."
            ) from error
    return folder


def _drawn(name: str) -> Callable[..., ClassPool]:
    """What opens one of the pools that taskscape draws itself."""

    def load(*, seed: Any = 0, n_drawings: Any = 20, image_size: Any = 28) -> ClassPool:
        from taskscape.pools import glyphs  # draws with matplotlib, which imports slowly

        return glyphs.load_glyphs(name, seed=seed, n_drawings=n_drawings, image_size=image_size)

    return load


def _locate_glyphs() -> Path:
    """The fonts inside matplotlib, found without importing it."""
    spec: Any = importlib.util.find_spec("matplotlib")
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


_DRAWN = {
    "glyphs": "letters and symbols: 2,564 characters, drawn from fonts; always available",
    "letters": "the letters of the glyphs: 1,311 of 15 scripts",
    "symbols": "the symbols of the glyphs: 1,253 of 13 blocks, from arrows to playing cards",
}
POOLS: dict[str, KnownSet] = {
    known.name: known
    for known in (
        *(
            KnownSet(
                name=name,
                description=description,
                locate=_locate_glyphs,
                load=_drawn(name),
                how_to_get="It needs matplotlib's fonts: pip install matplotlib.",
            )
            for name, description in _DRAWN.items()
        ),
        KnownSet(
            name="omniglot",
            description="1,623 handwritten characters of 50 alphabets, 20 drawings each",
            locate=locate_omniglot,
            load=load_omniglot,
            how_to_get=(
                "Fetch it with load_pool('omniglot', download=True) or `taskscape data get "
                "omniglot`, or put images_background.zip and images_evaluation.zip there by hand, "
                "or give path=…"
            ),
            files={
                f"{_OMNIGLOT}/images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
                f"{_OMNIGLOT}/images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
            },
        ),
        KnownSet(
            name="mini_imagenet",
            description="features of 100 ImageNet classes, 600 images each; split 64/16/20",
            locate=locate_mini_imagenet,
            load=load_mini_imagenet,
            how_to_get=(
                "Put there a mini_imagenet*.npz with features, label, class_name and class_split, "
                "or unpack LEO's embeddings "
                "(http://storage.googleapis.com/leo-embeddings/embeddings.zip), or give path=…"
            ),
        ),
    )
}
"""The known data sets by name."""
