"""Settings that stand once: a field says its default, limits and meaning; the rest is made from it.

Checks, TOML files, ``--set`` and options of commands, tables of the docs and the hashes of stages
all read the fields.
"""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, replace
from difflib import get_close_matches
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from taskscape.errors import DataError

Config = TypeVar("Config")


def setting(
    default: Any,
    help: str = "",
    *,
    at_least: int | float | None = None,
    at_most: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
    choices: Collection[str] = (),
    flag: str = "",
) -> Any:
    """A field of a frozen dataclass of settings, with all that is known of it.

    Limits hold for each item of a list; a ``Literal`` has its choices from there. One with a
    ``flag`` is an option of its command; fields that share a flag are set together.
    """
    about = {
        "help": help,
        "low": at_least if above is None else above,
        "high": at_most if below is None else below,
        "open": ("low " if above is not None else "") + ("high" if below is not None else ""),
        "choices": choices,
        "flag": flag,
    }
    if callable(default):
        return field(default_factory=default, metadata=about)
    return field(default=default, metadata=about)


def like(config: type, name: str, **changes: Any) -> Any:
    """A field that is one of other settings: their default, limits and meaning, unless changed."""
    of = settings_in(config)[name]
    default = changes.pop("default", of.default)
    return field(default=default, metadata={**of.metadata, "flag": "", **changes})


def settings_in(config: type) -> Mapping[str, Field[Any]]:
    """Every setting of a class by its full name, such as ``fit.n_tasks``."""
    every: dict[str, Field[Any]] = {}
    for f in fields(config):
        kind = get_type_hints(config)[f.name]
        if is_dataclass(kind):
            every |= {f"{f.name}.{name}": own for name, own in settings_in(kind).items()}  # type: ignore[arg-type]
        else:
            every[f.name] = f
    return every


def values_of(config: Any) -> dict[str, Any]:
    """The values of all settings by their full names."""
    return {name: attrgetter(name)(config) for name in settings_in(type(config))}


def check_settings(config: Any, where: str = "") -> None:
    """Raise an error unless every setting is of its kind and within its limits.

    Numbers of NumPy become Python's.
    """
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            check_settings(value, f"{where}{f.name}.")
        else:
            right = _checked(
                value, get_type_hints(type(config))[f.name], f.metadata, where + f.name
            )
            object.__setattr__(config, f.name, right)


def _checked(value: Any, kind: Any, about: Mapping[str, Any], name: str) -> Any:
    """The value as this kind of setting."""
    from taskscape import arguments  # imports NumPy, which help texts do not need

    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        kind = next(k for k in get_args(kind) if k is not NoneType)
    if get_origin(kind) is tuple:
        inner, *rest = get_args(kind)
        length = None if rest == [Ellipsis] else 1 + len(rest)
        if isinstance(value, list | tuple) and length in (None, len(value)):
            return tuple(_checked(v, inner, about, name) for v in value)
        many = "a list" if length is None else f"a list of {length}"
        example = ["a", "b"] if inner is str else [5, 10]
        raise DataError(f"{name}={value!r} must be {many}, such as {json.dumps(example)}.")
    if choices := about.get("choices") or (get_args(kind) if get_origin(kind) is Literal else ()):
        return arguments.check_choice(value, name, choices)
    if kind is bool:
        return arguments.check_flag(value, name)
    if kind is int:
        return arguments.check_whole(value, name, about.get("low"), about.get("high"))
    if kind is float:
        limits = {key: about[key] for key in ("low", "high") if about.get(key) is not None}
        return arguments.check_number(value, name, **limits, open_=about.get("open", ""))
    if kind is str and not isinstance(value, str):
        raise DataError(f"{name}={value!r} must be text in quotes.")
    return value


# -- from TOML and the command line -------------------------------------------------------------


def changed(
    config: Config,
    values: Mapping[str, Any],
    source: str = "",
    *,
    where: str = "",
    also: Iterable[str] = (),
) -> Config:
    """Settings with some values changed, nested by section, each checked.

    ``source`` says in errors where they are from, ``also`` which other names there are. Text that
    stands for a list has commas.
    """
    new: dict[str, Any] = {}
    kinds = get_type_hints(type(config))
    known = {f.name: f for f in fields(config)}  # type: ignore[arg-type]
    for key, value in values.items():
        name = f"{where}{key}"
        if key not in known:
            every = [where + name for name in settings_in(type(config))]
            hint = _near(name, [*every, *also])
            raise DataError(f"{source}{name}={value!r} is not a setting{hint}")
        before = getattr(config, key)
        if is_dataclass(before):
            if not isinstance(value, Mapping):
                section = f"a section, [{name}], with settings in it"
                raise DataError(f"{source}{name}={value!r} must be {section}.")
            new[key] = changed(before, value, source, where=f"{name}.")
        elif isinstance(before, Mapping):
            new[key] = _by_name(before, value, source, name)
        else:
            if get_origin(kinds[key]) is tuple and not isinstance(value, list | tuple | Mapping):
                words = [word.strip() for word in str(value).split(",") if word.strip()]
                value = words if get_args(kinds[key])[0] is str else [_plain(w) for w in words]
            new[key] = _checked(value, kinds[key], known[key].metadata, f"{source}{name}")
    return replace(config, **new)  # type: ignore[type-var]


def _near(name: str, every: Sequence[str]) -> str:
    """Which names there are, and those near a wrong one."""
    near = [n for n in every if n.rpartition(".")[2] == name.rpartition(".")[2]]
    near = near or get_close_matches(name, every, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"{hint} There are {', '.join(every)}."


def _by_name(before: Mapping[str, Any], value: Any, source: str, name: str) -> dict[str, Any]:
    """Tables of plain values by name, over those there were before."""
    for own in value.values() if isinstance(value, Mapping) else [value]:
        if not isinstance(own, Mapping) or any(isinstance(v, Mapping | list) for v in own.values()):
            raise DataError(
                f"{source}{name}={value!r} must have a table for each name, such as "
                f"[{name}.maml] with inner_steps = 5 in it."
            )
    return {**before, **{key: {**before.get(key, {}), **own} for key, own in value.items()}}


def assigned(texts: Mapping[str, str]) -> dict[str, Any]:
    """What is written for each full name, as in TOML or as plain text: the values, by section.

    >>> assigned({"fit.n_way": "[5, 10]", "fit.prepare": "none", "seed": "3"})
    {'fit': {'n_way': [5, 10], 'prepare': 'none'}, 'seed': 3}
    """
    lines = []
    for name, text in texts.items():
        plain = _plain(text)
        written = json.dumps(plain, ensure_ascii=False) if isinstance(plain, str) else text
        lines.append(f"{name} = {written}")
    try:
        return tomllib.loads("\n".join(lines))
    except ValueError as error:
        raise DataError(f"{', '.join(lines)}: {error}. Write such as fit.n_way=5,10.") from None


def named(texts: Iterable[str]) -> dict[str, str]:
    """The texts of ``name=value``, by name."""
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise DataError(f"{text!r} is no setting: write name=value, such as seed=3.")
        pairs[name.strip()] = value.strip()
    return pairs


def _plain(text: str) -> Any:
    """A value as TOML reads it, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def flags_of(config: type) -> dict[str, list[str]]:
    """Every flag, with the full names of the settings that it changes."""
    flags: dict[str, list[str]] = {}
    for name, of in settings_in(config).items():
        if flag := of.metadata.get("flag"):
            flags.setdefault(flag, []).append(name)
    return flags
