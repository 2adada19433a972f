"""Settings from and to TOML; every mistake is named with its key, its value and a remedy."""

import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from taskscape.errors import DataError
from taskscape.files import written_in_one_piece
from taskscape.studies.pipeline.config import StudyConfig, preset

__all__ = ["changed", "config_from", "read_config", "to_toml", "write_config"]

_SIGNED = "# Written by taskscape, which never replaces this file once it is edited. Checksum: "


def read_config(path: str | os.PathLike[str], base: StudyConfig | None = None) -> StudyConfig:
    """The settings of a TOML file over those of ``base``, or of the preset that the file names."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no such file: {os.fspath(path)}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{os.fspath(path)} is not readable TOML: {error}.") from error
    return config_from(values, os.fspath(path), base)


def config_from(
    values: Mapping[str, Any], source: str = "the settings", base: StudyConfig | None = None
) -> StudyConfig:
    """The settings of a nested mapping, such as :meth:`StudyConfig.to_dict` gives."""
    named = values.get("preset")
    if base is None:
        if named is not None and not isinstance(named, str):
            raise DataError(f"preset={named!r} in {source} must be text, such as 'quick'.")
        base = preset(named or "default")
    rest = {k: v for k, v in values.items() if k != "preset"}
    return changed(base, rest, source)


def changed(old: Any, values: Mapping[str, Any], source: str, where: str = "") -> Any:
    """A dataclass of settings with some values changed, each seen to be of the right kind."""
    kinds = get_type_hints(type(old))
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in kinds:
            raise DataError(_unknown(key, value, list(kinds), source, where))
        before = getattr(old, key)
        if is_dataclass(before):
            if not isinstance(value, Mapping):
                raise DataError(
                    f"{key}={value!r} in {source} must be a section, [{key}], with settings in it."
                )
            made[key] = changed(before, value, source, f"{key}.")
        elif key == "settings":
            made[key] = _by_learner(value, source, where, before)
        else:
            made[key] = _as(kinds[key], value, f"{where}{key}", source)
    return replace(old, **made)


def _unknown(key: str, value: Any, known: list[str], source: str, where: str) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    section = f"section [{where[:-1]}]" if where else "the top level"
    return (
        f"{where}{key}={value!r} in {source} is not a setting; {section} has "
        f"{', '.join(known)}.{hint}"
    )


def _as(kind: Any, value: Any, name: str, source: str) -> Any:
    """The value as this kind of setting."""
    if get_origin(kind) is tuple:
        inner, *rest = get_args(kind)
        length = None if rest == [Ellipsis] else 1 + len(rest)
        if isinstance(value, list | tuple) and length in (None, len(value)):
            return tuple(_as(inner, v, name, source) for v in value)
        many = "a list" if length is None else f"a list of {length}"
        example = ["a", "b"] if inner is str else [5, 10]
        raise DataError(
            f"{name}={value!r} in {source} must be {many}, such as {json.dumps(example)}."
        )
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    words = {
        int: "a whole number",
        float: "a number",
        str: "text in quotes",
        bool: "true or false",
    }
    raise DataError(f"{name}={value!r} in {source} must be {words[kind]}.")


def _by_learner(
    value: Any, source: str, where: str, before: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Settings of learners: a table of plain values for each, over those there were before."""
    made = {name: dict(own) for name, own in before.items()}
    named = value if isinstance(value, Mapping) else {"": value}
    for name, own in named.items():
        if not isinstance(own, Mapping) or any(isinstance(v, Mapping | list) for v in own.values()):
            raise DataError(
                f"{where}settings in {source} must have a table for each learner, such as "
                "[learners.settings.maml] with inner_steps = 5 in it."
            )
        made[name] = {**made.get(name, {}), **own}
    return made


def to_toml(config: StudyConfig) -> str:
    """All settings as TOML, which :func:`read_config` reads back."""
    values = config.to_dict()
    lines = [f"{k} = {_toml(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section in (f.name for f in fields(config) if isinstance(values[f.name], dict)):
        tables = {k: v for k, v in values[section].items() if isinstance(v, dict)}
        lines += ["", f"[{section}]"]
        lines += [f"{k} = {_toml(v)}" for k, v in values[section].items() if k not in tables]
        for key, table in tables.items():
            for name, own in table.items():
                lines += ["", f"[{section}.{key}.{name}]"]
                lines += [f"{k} = {_toml(v)}" for k, v in own.items()]
    return "\n".join(lines) + "\n"


def write_config(path: Path, config: StudyConfig, *also: StudyConfig) -> None:
    """Write all settings; a file that was edited stays, and must say the same (or as ``also``)."""
    if path.is_file() and _edited(path):
        if read_config(path) not in (config, *also):
            raise DataError(
                f"{path} was edited, and has other settings than this run. Run with them by "
                f"--config {path}, or move the file away."
            )
        return
    text = to_toml(config)
    with written_in_one_piece(path) as made:
        made.write_text(f"{_SIGNED}{_checksum(text)}\n{text}", encoding="utf-8", newline="\n")


def _edited(path: Path) -> bool:
    first, _, rest = path.read_bytes().decode("utf-8", "replace").partition("\n")
    return first != f"{_SIGNED}{_checksum(rest)}"


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _toml(value: Any) -> str:
    """A plain value; JSON's text, numbers and lists are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
