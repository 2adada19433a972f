"""Plain values in JSON: results, formats, and the versions and hardware that made them."""

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import AbstractArray

from taskscape.errors import DataError
from taskscape.io.files import Kind, PathLike, as_path, atomic_write

FORMAT = 3
"""Of everything that is checked by :func:`check_format`; 3 has one checksum in every file."""
_DTYPES = {"Float": np.float64, "Int": np.int64, "Bool": np.bool_}


def plain(value: Any) -> Any:
    """Numbers, lists and dicts that JSON knows; what is not a number becomes None.

    Dataclasses become dicts of their fields.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: Any, value: Any) -> Any:
    """A value of some type, such as a dataclass, that :func:`plain` took apart; None may be NaN."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else from_plain(of[0], value)
    if kind is float and value is None:
        return math.nan
    if isinstance(kind, type) and is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(
            **{f.name: from_plain(types[f.name], value[f.name]) for f in fields(kind) if f.init}
        )
    if origin is tuple:
        each = [of[0]] * len(value) if of[-1] is Ellipsis else of
        return tuple(from_plain(k, v) for k, v in zip(each, value, strict=True))
    if origin is Mapping:
        return {name: from_plain(of[1], v) for name, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, AbstractArray):
        return np.array(value, dtype=_DTYPES[kind.__name__.partition("[")[0]])
    return value


def write_json(path: Path, value: Any) -> None:
    """Plain values as JSON for people to read."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def check_format(header: Mapping[str, Any], path: PathLike) -> None:
    """Raise an error unless this version can read what a header of that format describes."""
    written = header.get("format")
    if not isinstance(written, int):
        raise DataError(f"{os.fspath(path)} is damaged: format={written!r} is not a number.")
    if written > FORMAT:
        raise DataError(f"{os.fspath(path)} was written by a newer taskscape; please upgrade.")
    if written < FORMAT:
        raise DataError(f"{os.fspath(path)} was written by an older taskscape; make it again.")


@contextmanager
def damage_named(path: PathLike, what: str) -> Iterator[None]:
    """Values of a file that are missing or of a wrong type are the file's fault, and named so."""
    try:
        yield
    except DataError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"{os.fspath(path)} is damaged: it does not hold what belongs into {what} "
            f"({type(error).__name__}: {error}). Make it again."
        ) from error


ResultT = TypeVar("ResultT", bound="SavedAsJson")


class SavedAsJson:
    """A result that is written as a JSON file of its own kind, and read back."""

    file: ClassVar[Kind]
    """Its files, which alone may be replaced."""
    what: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dicts, ready for JSON; NaN becomes None."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"format": FORMAT, "what": self.what, **plain(known)}

    @classmethod
    def from_dict(cls: type[ResultT], values: Mapping[str, Any]) -> ResultT:
        """The result that :meth:`to_dict` took apart."""
        if values.get("what") != cls.what:
            raise DataError(f"this is not {cls.file.name} written by taskscape.")
        check_format(values, cls.file.name)
        result: ResultT = from_plain(cls, values)
        return result

    def save(self, path: PathLike) -> None:
        """Write a JSON file that :meth:`load` reads."""
        with atomic_write(path, self.file) as file:
            text = json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls: type[ResultT], path: PathLike) -> ResultT:
        """The result that :meth:`save` wrote; an error for a file of another kind."""
        file = as_path(path)
        if not file.is_file():
            raise DataError(f"no such file: {os.fspath(path)}.")
        if not cls.file.known(file):
            raise DataError(f"{os.fspath(path)} is not {cls.file.name} written by taskscape.")
        with damage_named(path, cls.file.name):
            result: ResultT = cls.from_dict(json.loads(file.read_text(encoding="utf-8")))
        return result


def versions(*names: str) -> dict[str, str]:
    """What made a result: the versions of Python and of some packages."""
    known = {}
    for name in names or ("taskscape", "jax", "jaxlib", "numpy", "scikit-learn"):
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = "unknown"
    return {"python": platform.python_version()} | known


def versions_and_hardware() -> dict[str, Any]:
    """Versions and hardware, for results that are kept."""
    import jax

    device = jax.devices()[0]
    return {
        "versions": versions("jax", "equinox", "optax", "numpy"),
        "hardware": {
            "device": device.device_kind,
            "platform": device.platform,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        },
    }
