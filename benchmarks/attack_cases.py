"""What ``attack.py`` tries: damaged files, odd arguments, odd command lines, odd surroundings.

A case is an action and a verdict on what the action returned. Files are damaged after taskscape
wrote them; an earlier version's file, without checksums, only gets values of wrong types, since
another value of the right type cannot be told from a true one.
"""

import contextlib
import copy
import hashlib
import io
import json
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
from PIL import Image

import taskscape as ts
from taskscape.compare import mean_distance
from taskscape.compare.posteriors import normalise_ways
from taskscape.diagram.result import CorrelationDiagram
from taskscape.embeddings import Catalogue
from taskscape.io.arrays import load_checkpoint, save_checkpoint
from taskscape.io.ledger import Ledger
from taskscape.meta import TrainConfig, Trained, make_learner, mlp
from taskscape.pools import find_look_alikes
from taskscape.select import Selection
from taskscape.similarity import choose_settings
from taskscape.study import config_from, load_study, read_config, run_study, to_toml
from taskscape.study.plan import check_config
from taskscape.targets import AdvisorSettings
from taskscape.themes import FitConfig, PrepareConfig

ACCEPTED, HARMLESS, WRONG = "rightly accepted", "harmless", "silently wrong"
CLEAR, TRACEBACK = "clear error", "traceback"


@dataclass(frozen=True)
class Case:
    """Something hostile to do, and how to rate what it returns if it returns."""

    words: str
    act: Callable[[], Any]
    verdict: Callable[[Any], str]


# -- what is attacked -----------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "tasks": {"n_way": 3, "n_shot": 4, "n_train": 40, "n_val": 20, "n_test": 20},
    "fit": {
        "n_tasks": 60, "n_way": [3, 4], "n_shot": 4, "task_themes": 2, "image_themes": 3,
        "max_passes": 1, "prepare": "none",
    },
    "learners": {"names": ["protonet"], "widths": [4], "train_tasks": 20, "batch_size": 4},
    "evaluate": {"n_shot": 1, "n_query": 3, "episodes": 2},
    "distances": {"k": 4},
    "diagram": {"n_bins": 4},
    "selection": {"rules": []},
    "forecast": {"enabled": False},
}  # fmt: skip


class Ground:
    """Small things of every kind, made once and kept in a folder between workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(24), 8)
        self.X = self.rng.normal(size=(192, 3)).astype(np.float32) + 3 * (labels % 5)[:, None]
        self.y = labels
        splits = ["train"] * 12 + ["val"] * 6 + ["test"] * 6
        self.pool = ts.ClassPool.from_arrays(
            self.X, self.y, splits=splits, groups=["ab"[c % 2] for c in range(24)]
        )
        self.tasks = ts.sample_tasks(self.pool, 60, n_way=(2, 4), n_shot=2, n_query=1, seed=1)
        self.lam = (0.5 + self.rng.gamma(1, 1, (60, 3))).astype(np.float32)
        self.embedded = ts.Embeddings.of(self.tasks, self.lam, model="m", delta=0.5)

    @cached_property
    def study(self) -> Path:
        """A finished study."""
        out = self.folder / "study"
        if not (out / "results.json").exists():
            run_study(self.pool, config_from(TINY), out, overwrite=out.exists())
        return out

    @cached_property
    def model(self) -> ts.TaskThemes:
        return ts.TaskThemes.load(self.study / "fit" / "model")

    def new(self, name: str) -> Path:
        """An empty folder."""
        place = self.folder / "now" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place


def digest(value: Any) -> str:
    """A hash of a result, whatever it is made of."""
    h = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, Mapping):
            for key in sorted(part, key=str):
                h.update(str(key).encode())
                add(part[key])
        elif isinstance(part, list | tuple):
            h.update(b"[")
            for each in part:
                add(each)
        elif isinstance(part, np.ndarray):
            h.update(str(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        else:
            h.update(repr(part).encode())

    add(value)
    return h.hexdigest()


# -- damaged files --------------------------------------------------------------------------------


def damage_bytes(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Some of the ways in which disks, transfers and people spoil a file."""
    data, n = bytearray(raw), len(raw)
    at, other = (int(rng.integers(n)) for _ in range(2))
    size = int(rng.integers(1, 65))
    how = str(rng.choice(["bit", "bit", "byte", "cut", "zeros", "twice", "swap", "more", "empty"]))
    if how == "bit":
        data[at] ^= 1 << int(rng.integers(8))
    elif how == "byte":
        data[at] = int(rng.integers(256))
    elif how == "cut":
        del data[at:]
    elif how == "zeros":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif how == "twice":
        data[at:at] = data[at : at + size]
    elif how == "swap":
        data[at : at + size], data[other : other + size] = (
            data[other : other + size],
            data[at : at + size],
        )
    elif how == "more":
        data += rng.bytes(size)
    else:
        data.clear()
    return f"{how} at {at} of {n}", bytes(data)


_TOML_VALUES = (
    "inf", "nan", "-inf", "-1", "0", "1e300", "9" * 25, "2.5", "true", '""', '"x"', "[]", "[1]",
    "[0, 0]", "[9999999999]", '["x"]', "[inf]", "{}", "1979-05-27",
)  # fmt: skip
_OTHER_TYPES: tuple[Any, ...] = (None, "x", [], {}, True, [[]], {"a": 1}, "")


def damage_json(values: Any, rng: np.random.Generator, types_only: bool) -> tuple[str, Any]:
    """One value of a JSON document changed, of another type, or gone."""
    values = copy.deepcopy(values)
    place, path = values, ""
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[int(rng.integers(len(keys)))]
        path += f"/{key}"
        inside = place[key]
        if isinstance(inside, dict | list) and inside and rng.random() < 0.7:
            place = inside
            continue
        break
    how = "gone" if rng.random() < 0.2 else "type" if types_only or rng.random() < 0.4 else "value"
    if how == "gone" and isinstance(place, dict):
        del place[key]
    elif how == "type" or not isinstance(inside, int | float | str):
        place[key] = _OTHER_TYPES[int(rng.integers(len(_OTHER_TYPES)))]
    elif isinstance(inside, str):
        place[key] = inside + "x"
    else:
        place[key] = (inside + 1, -inside - 1, inside * 1e6 + 3)[int(rng.integers(3))]
    return f"{path} {how}", values


@dataclass(frozen=True)
class Artefact:
    """A file or folder that taskscape writes, and how it is read back to something comparable."""

    name: str
    save: Callable[[Ground, Path], None]
    load: Callable[[Ground, Path], Any]
    checksummed: bool = True
    """Whether another value must be noticed: not in files that others write."""


def _save_learner(ground: Ground, path: Path) -> None:
    import jax

    learner, network = make_learner("protonet"), mlp(3, (4,))
    state = learner.init(jax.random.key(0), network, 3)
    Trained(learner, network, 3, state, np.zeros(4, np.float32), np.zeros(1, np.float32)).save(path)


def _learner(path: Path) -> Any:
    trained = Trained.load(path)
    return trained.to_dict(), trained.losses, trained.scores


def _model(path: Path) -> Any:
    model = ts.TaskThemes.load(path)
    return model.fingerprint_, repr(model.get_params()), model.factors_, model.elbo_reference_


def _save_catalogue(ground: Ground, path: Path) -> None:
    for rows in (slice(0, 30), slice(30, 60)):
        Catalogue.append(path, ground.embedded[rows])


def _embedded(path: Path) -> Any:
    e = ts.Embeddings.load(path)
    e = e[np.argsort(e.ids, kind="stable")]  # parts of a catalogue may change places
    return vars(e.header), e.ids, e.classes, e.values, e.logs, e.elbo, e.keys


def _tasks(ground: Ground, path: Path) -> Any:
    t = ts.TaskSet.load(path, ground.pool)
    return t.classes, t.keys, t.n_shot, t.n_query, t.support, t.query


def _save_diagram(ground: Ground, path: Path) -> None:
    x = np.arange(30.0)
    ts.correlation_diagram(x, 1 - x / 40, n_bins=4).save(path)


def _save_checkpoint(ground: Ground, path: Path) -> None:
    save_checkpoint(path, {"a": ground.lam, "b": np.arange(4)}, {"what": "x", "n": 3})


def _save_pictures(ground: Ground, path: Path) -> None:
    for c in "abc":
        (path / c).mkdir(parents=True)
        for i in range(2):
            pixels = ground.rng.integers(0, 255, (6, 6), dtype=np.uint8)
            Image.fromarray(pixels).save(path / c / f"{i}.png")


def _save_zip(ground: Ground, path: Path) -> None:
    folder = ground.new("pictures")
    _save_pictures(ground, folder)
    shutil.make_archive(str(path.with_suffix("")), "zip", folder)


def _save_arrow(ground: Ground, path: Path) -> None:
    table = _own_table(ground)
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _save_csv(ground: Ground, path: Path) -> None:
    pyarrow.csv.write_csv(_own_table(ground), path)


def _own_table(ground: Ground) -> pa.Table:
    columns = {f"f{i}": ground.X[:, i] for i in range(3)}
    return pa.table({**columns, "label": [f"c{v}" for v in ground.y]})


def _pool(path: Path) -> Any:
    pool = ts.load_pool(str(path))
    return pool.fingerprint, pool.class_names


def _save_ledger(ground: Ground, path: Path) -> None:
    lab = Ledger(path, "test")
    for i in range(3):
        lab.add({"cell": i}, {"accuracy": 0.5 + i})


_FILES = (
    Artefact("tasks.parquet", lambda g, p: g.tasks.save(p), _tasks),
    Artefact("embeddings.parquet", lambda g, p: g.embedded.save(p), lambda g, p: _embedded(p)),
    Artefact("catalogue", _save_catalogue, lambda g, p: _embedded(p)),
    Artefact(
        "selection.json",
        lambda g, p: ts.select(g.lam[:5], g.lam, 4).save(p),
        lambda g, p: Selection.load(p).to_dict(),
        False,
    ),
    Artefact(
        "diagram.json", _save_diagram, lambda g, p: CorrelationDiagram.load(p).to_dict(), False
    ),
    Artefact("checkpoint", _save_checkpoint, lambda g, p: load_checkpoint(p)),
    Artefact("learner", _save_learner, lambda g, p: _learner(p)),
    Artefact("pool", lambda g, p: g.pool.save(p), lambda g, p: _pool(p)),
    Artefact("own.npz", lambda g, p: np.savez(p, X=g.X, y=g.y), lambda g, p: _pool(p), False),
    Artefact(
        "own.parquet", lambda g, p: pq.write_table(_own_table(g), p), lambda g, p: _pool(p), False
    ),
    Artefact("own.csv", _save_csv, lambda g, p: _pool(p), False),
    Artefact("own.arrow", _save_arrow, lambda g, p: _pool(p), False),
    Artefact("own.zip", _save_zip, lambda g, p: _pool(p), False),
    Artefact("pictures", _save_pictures, lambda g, p: _pool(p), False),
    Artefact("ledger.jsonl", _save_ledger, lambda g, p: Ledger(p, "test").cells, False),
    Artefact(
        "study.toml",
        lambda g, p: _write(p, to_toml(config_from(TINY))),
        lambda g, p: _checked_config(p),
        False,
    ),
)
_FITTED = (
    Artefact("model", lambda g, p: g.model.save(p), lambda g, p: _model(p)),
    Artefact(
        "study",
        lambda g, p: _copy(g.study, p),
        lambda g, p: load_study(p, g.pool).to_dict(),
    ),
)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _copy(source: Path, to: Path) -> None:
    shutil.copytree(source, to)


def _checked_config(path: Path) -> Any:
    config = read_config(path)
    check_config(config)
    return config.to_dict()


def damaged_file(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A file of some kind, damaged or edited after it was written."""
    kinds = (*_FILES, *_FITTED) if fits else _FILES
    kind = kinds[int(rng.integers(len(kinds)))]
    path = ground.new("file") / kind.name
    kind.save(ground, path)
    right = digest(kind.load(ground, path))
    inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    read = [p for p in inside if p.suffix not in (".png", ".html", ".csv") or kind.name != "study"]
    file = read[int(rng.integers(len(read)))]
    words, checksummed = _spoil(file, read, rng, kind.checksummed)

    def verdict(value: Any) -> str:
        if digest(value) == right:
            return HARMLESS
        return WRONG if checksummed else ACCEPTED

    return Case(
        f"{kind.name}: {file.name} {words}", lambda: kind.load(ground, path), verdict
    )  # fmt: skip


_EDITED = ("header.json", "manifest.json", "results.json", "stage.json", "study.json")
"""Files without a checksum of themselves: people may edit them (docs/reliability.md)."""


def _spoil(
    file: Path, all_files: list[Path], rng: np.random.Generator, checksummed: bool
) -> tuple[str, bool]:
    """Damage a file; also, whether a result that differs would be wrong."""
    same = [p for p in all_files if p.suffix == file.suffix and p != file]
    chance = rng.random()
    if chance < 0.1 and same:
        other = same[int(rng.integers(len(same)))]
        one, two = file.read_bytes(), other.read_bytes()
        file.write_bytes(two)
        other.write_bytes(one)
        return f"swapped with {other.name}", checksummed
    if file.suffix == ".json" and chance < 0.7:
        values = json.loads(file.read_text(encoding="utf-8"))
        old = rng.random() < 0.5 and isinstance(values, dict)
        if old:
            values = {k: v for k, v in values.items() if k != "checksum"}
        words, values = damage_json(values, rng, types_only=old)
        file.write_text(json.dumps(values), encoding="utf-8")
        return (
            f"{'without checksum, ' if old else ''}{words}",
            checksummed and not old and file.name not in _EDITED,
        )
    if file.suffix == ".toml" and chance < 0.8:
        lines = file.read_text(encoding="utf-8").splitlines()
        settings = [i for i, line in enumerate(lines) if " = " in line]
        at = settings[int(rng.integers(len(settings)))]
        name = lines[at].partition(" = ")[0]
        lines[at] = f"{name} = {_TOML_VALUES[int(rng.integers(len(_TOML_VALUES)))]}"
        file.write_text("\n".join(lines), encoding="utf-8")
        return lines[at], False
    if file.suffix == ".parquet" and chance < 0.3:
        table = pq.read_table(file)
        held = json.loads((table.schema.metadata or {}).get(b"taskscape", b"{}"))
        header = {k: v for k, v in held.items() if k not in ("checksum", "sums", "columns")}
        if header:
            words, header = damage_json(header, rng, types_only=True)
            text = json.dumps(header)
            pq.write_table(table.replace_schema_metadata({b"taskscape": text}), file)
            return f"header without checksum, {words}", False
    words, raw = damage_bytes(file.read_bytes() or b"0", rng)
    file.write_bytes(raw)
    return words, checksummed


# -- odd arguments --------------------------------------------------------------------------------


def odd_values(ground: Ground) -> list[Any]:
    """Things that a caller may hand over by mistake."""
    nan = math.nan
    return [
        None, True, False, 0, 1, 2, 3, -1, 2.5, 0.5, nan, math.inf, -math.inf, 10**9, 10**30, 1j,
        "", "x", "3", "train", "all", b"x", "\0", "a" * 5000, "~nobody-here/x", "ü→", [], [1, 2],
        (1, 2), (2, 1), (2, 3, 4), ("a", "b"), {}, {"a": 1}, {1, 2}, object(), range(3), print,
        type, Path("nowhere"), ValueError("x"), [[1], [1, 2]], [["0", "1"]], [["0", "0"]],
        np.int64(2), np.float32(0.5), np.bool_(True), np.array(3), np.array([1, 2]),
        np.int8(100), np.ma.masked_equal([1, 2], 2), np.ma.masked_less(ground.lam, 1),
        np.array(["a"]), np.array([None]), np.zeros(0), np.zeros((2, 0)), np.full((4, 3), nan),
        -np.ones((4, 3)), np.ones((4, 3)), np.ones((2, 4, 3)), np.ones((60, 3), bool),
        np.ones((4, 1)), np.full((60, 3), np.inf), np.datetime64("2020-01-01"),
        ground.pool, ground.tasks, ground.embedded,
    ]  # fmt: skip


def whole(least: int, most: float = math.inf) -> Callable[[Any], bool]:
    return lambda v: bool(
        isinstance(v, int | np.integer) and not isinstance(v, bool) and least <= v <= most
    )


def span(least: int, most: int) -> Callable[[Any], bool]:
    good = whole(least, most)

    def valid(v: Any) -> bool:
        pair = isinstance(v, tuple | list) and len(v) == 2
        return good(v) or bool(pair and all(map(good, v)) and v[0] <= v[1])

    return valid


def number(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    kinds = int | float | np.integer | np.floating
    return lambda v: bool(isinstance(v, kinds) and not isinstance(v, bool) and low <= v <= high)


def choice(*names: Any) -> Callable[[Any], bool]:
    return lambda v: (v is None and None in names) or (isinstance(v, str) and v in names)


def flag(v: Any) -> bool:
    return isinstance(v, bool | np.bool_)


def optional(valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: v is None or valid(v)


def lam(v: Any) -> bool:
    """λ of three task-themes, as an array, as lists or embedded."""
    try:
        values = np.asarray(getattr(v, "lam", v), dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if np.asarray(getattr(v, "lam", v)).dtype.kind not in "fiuO" or values.ndim not in (1, 2, 3):
        return False
    return bool(values.size and values.shape[-1] > 1 and (np.isfinite(values) & (values > 0)).all())


def _ragged(v: Any) -> bool:
    try:
        np.asarray(v)
    except ValueError:
        return True
    return False


def anything(v: Any) -> bool:
    return True


def nothing(v: Any) -> bool:
    return False


def seed(v: Any) -> bool:
    return whole(0)(v)


@dataclass(frozen=True)
class Call:
    """A public call: good arguments, and for each what else is good."""

    name: str
    call: Callable[..., Any]
    given: Mapping[str, Any]
    good: Mapping[str, Callable[[Any], bool]]
    skip: Callable[[Any], bool] = nothing
    """Good values that would mean long work."""


def _finite(result: Any) -> bool:
    """Whether all numbers of a result are finite."""
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, np.ndarray | float) and not np.isfinite(part).all():
            return False
    return True


def _first(stream: Any) -> Any:
    return next(iter(stream)).pool_rows(slice(0, 2)).classes


def calls(g: Ground, fits: bool) -> list[Call]:
    """Every public call, with tiny arguments."""
    draw = {
        "n_way": span(2, 24), "n_shot": lambda v: v == "all" or span(1, 7)(v),
        "n_query": whole(0, 5), "split": choice(None, "train"), "within_group": flag, "seed": seed,
        "pool": lambda v: v is g.pool,
    }  # fmt: skip
    weights = {"group_weights": choice("groups", "classes")}
    pair = {"test": lam, "train": lam}
    tests = {"test": g.lam[:4], "train": g.lam}
    sampling = {"pool": g.pool, "n_way": 2, "n_shot": 2}
    result = [
        Call("sample_tasks", lambda **k: _drawn(ts.sample_tasks(**k)),
             sampling | {"n_tasks": 5, "n_query": 0, "split": None, "within_group": False,
                         "unique": False, "seed": 0, "group_weights": "groups"},
             draw | weights | {"n_tasks": whole(1, 10**7), "unique": flag}),
        Call("sample_tasks (stream)", lambda **k: _first(ts.sample_tasks(**k, stream=True)),
             sampling | {"n_tasks": 50, "n_query": 0, "seed": 0, "chunk_size": 8, "split": None,
                         "within_group": False},
             draw | {"n_tasks": optional(whole(1)), "chunk_size": whole(1)},
             skip=lambda v: isinstance(v, int) and v > 10**8),
        Call("make_tasks", lambda **k: _drawn(ts.make_tasks(**k)),
             {"pool": g.pool, "classes": [["0", "1"]], "n_shot": 2, "n_query": 0, "seed": 0,
              "support": None, "query": None},
             draw | {"n_shot": lambda v: v == "all" or whole(1, 8)(v) or span(1, 8)(v),
                     "classes": anything, "support": lambda v: v is None,
                     "query": lambda v: v is None}),
        Call("TaskSet.with_samples", lambda **k: _drawn(g.tasks.with_samples(**k)),
             {"n_shot": 2, "n_query": 1},
             {"n_shot": lambda v: v == "all" or span(1, 8)(v), "n_query": whole(0, 7)}),
        Call("TaskSet[…]", lambda rows: _drawn(g.tasks[rows]), {"rows": 3}, {"rows": anything}),
        Call("TaskSet.batches", lambda **k: next(g.tasks.batches(**k)).classes,
             {"batch_size": 8}, {"batch_size": whole(1)}),
        Call("Embeddings.of", lambda **k: ts.Embeddings.of(**k).lam,
             {"tasks": g.tasks, "values": g.lam}, {"tasks": lambda v: v is g.tasks, "values": lam}),
        Call("distances (paired)", lambda **k: np.asarray(ts.distances(**k, paired=True)),
             {"test": g.lam[:4], "train": g.lam[:4]}, pair),
        Call("distances", ts.distances, {**tests, "kind": "kl"},
             pair | {"kind": choice(*_KINDS)}),
        Call("mean_distance", mean_distance, tests, pair),
        Call("nearest", lambda **k: ts.nearest(**k).distances,
             {**tests, "k": 2}, pair | {"k": whole(1, 60)}),
        Call("normalise_ways", lambda n_way: normalise_ways(g.embedded, n_way=n_way).values,
             {"n_way": 5}, {"n_way": number(1e-9)}),
        Call("resemblance", lambda **k: ts.resemblance(**k).to_dict(),
             {"test": g.tasks, "train": g.tasks, "similarity": "task_means", "seed": 0},
             {"test": lambda v: v is g.tasks, "train": lambda v: v is g.tasks,
              "similarity": choice("task_means"), "seed": seed}),
        Call("correlation_diagram", lambda **k: ts.correlation_diagram(**k).to_dict(),
             {"distance": np.arange(30.0), "accuracy": np.arange(30.0) / 40, "classes": None,
              "difficulty": None, "n_bins": 4, "bins": "paper", "confidence": 0.9, "seed": 0,
              "distance_label": "d"},
             {"n_bins": whole(1, 10**5), "bins": choice("paper", "quantile"), "seed": seed,
              "confidence": number(0.5, 0.999), "classes": anything, "difficulty": anything,
              "distance_label": lambda v: isinstance(v, str)}, skip=_long),
        Call("select", lambda **k: ts.select(**k).indices,
             {**tests, "n": 3, "rule": "coverage", "seed": 0, "train_classes": None,
              "max_shared": None, "similarity": "themes"},
             pair | {"n": whole(1, 60), "rule": choice(*_RULES), "seed": seed,
                     "train_classes": anything, "max_shared": optional(whole(0)),
                     "similarity": anything}),
        Call("FitConfig", lambda **k: vars(FitConfig(**k)),
             vars(FitConfig()),
             {"task_themes": whole(1, 10**4), "image_themes": whole(1, 10**4),
              "delta": number(1e-300, 1e300), "batch_size": whole(1), "tau0": number(0, 1e300),
              "tau1": number(0.5, 1), "tol": number(1e-300, 1e300), "max_iter": whole(1),
              "max_passes": whole(1), "max_tasks": optional(whole(1)), "patience": whole(1),
              "evaluate_every": whole(1), "min_gain": number(-1e300, 1e300),
              "nu_fraction": number(1e-300, 1e300), "kappa": number(1e-300, 1e300)}),
        Call("PrepareConfig", lambda **k: PrepareConfig(**k).describe(),
             {"power": None, "l2": False, "centre": True, "pca": 2},
             {"power": optional(number(1e-9, 1)), "l2": flag, "centre": flag,
              "pca": optional(whole(1))}),
        Call("TaskThemes", lambda **k: ts.TaskThemes(**k).check_settings(),
             ts.TaskThemes().get_params(),
             {"image_themes": whole(2), "temperature": number(1e-300, 1e300),
              "bandwidth": number(1e-300, 1e300), "weights": choice("auto"),
              "random_state": optional(seed), "prepare": choice(None, "auto"),
              "co_clustering": choice(None), "origin": lambda v: isinstance(v, str)}),
        Call("TaskThemes.paper", lambda **k: ts.TaskThemes.paper(**k).check_settings(),
             ts.TaskThemes.paper().get_params(),
             {"task_themes": whole(1, 10**4), "image_themes": whole(1, 10**4),
              "n_restarts": whole(1, 1000), "ensemble": whole(1, 1), "n_held_out": whole(1),
              "random_state": optional(seed), "prepare": choice(None, "auto"),
              "delta": number(1e-300, 1e300), "batch_size": whole(1), "tau0": number(0, 1e300),
              "tau1": number(0.5, 1), "tol": number(1e-300, 1e300), "max_iter": whole(1),
              "max_passes": whole(1), "max_tasks": optional(whole(1)), "patience": whole(1),
              "evaluate_every": whole(1), "min_gain": number(-1e300, 1e300),
              "nu_fraction": number(1e-300, 1e300), "kappa": number(1e-300, 1e300)}),
        Call("TrainConfig", lambda **k: vars(TrainConfig(**k)), vars(TrainConfig()),
             dict.fromkeys(vars(TrainConfig()), anything)),
        Call("make_learner", lambda name: vars(make_learner(name)), {"name": "maml"},
             {"name": choice("maml", "protonet")}),
        Call("load_pool", lambda source: ts.load_pool(source).fingerprint,
             {"source": (g.X, g.y)}, {"source": anything}),
        Call("load_pool((X, y))",
             lambda X, y, **k: ts.load_pool((X, y), **k).fingerprint,
             {"X": g.X, "y": g.y, "splits": None, "groups": None, "class_names": None,
              "name": None, "split": None, "encoder": None},
             dict.fromkeys(("X", "y", "splits", "groups", "class_names", "name", "split",
                            "encoder"), anything)),
        Call("ClassPool.from_arrays", lambda **k: ts.ClassPool.from_arrays(**k).fingerprint,
             {"X": g.X, "y": g.y, "splits": None, "groups": None, "class_names": None},
             dict.fromkeys(("X", "y", "splits", "groups", "class_names"), anything)),
        Call("join_pools", lambda pools: ts.join_pools(pools).fingerprint,
             {"pools": {"a": g.pool, "b": g.pool}}, {"pools": anything}),
        Call("find_look_alikes", lambda **k: find_look_alikes(**k) and None,
             {"pool": g.pool, "other": g.pool},
             {"pool": lambda v: v is g.pool, "other": lambda v: v is g.pool}),
        Call("TaskSet.load", lambda **k: ts.TaskSet.load(**k).classes,
             {"path": _kept(g, "t.parquet", g.tasks.save), "pool": g.pool},
             {"pool": lambda v: v is g.pool}),
        Call("Embeddings.load", lambda path: ts.Embeddings.load(path).lam,
             {"path": _kept(g, "e.parquet", g.embedded.save)}, {}),
        Call("TaskThemes.load", ts.TaskThemes.load, {"path": "x"}, {}),
        Call("load_study", load_study, {"folder": "x"}, {}),
        Call("read_config", read_config, {"path": "x"}, {}),
        Call("advise", ts.advise, {"pool": g.pool, "target": "nowhere"}, {},
             skip=lambda v: isinstance(v, ts.TaskSet | dict | tuple | np.ndarray)),
        Call("choose_settings", choose_settings,
             {"tasks": g.tasks, "values": {"image_themes": (0,)}}, {}),
    ]  # fmt: skip
    if fits:
        result += [
            Call("TaskThemes.transform", g.model.transform, {"X": g.tasks},
                 {"X": lambda v: v is g.tasks}),
            Call("TaskThemes.embed", lambda **k: g.model.embed(**k).lam,
                 {"tasks": g.tasks}, {"tasks": lambda v: v is g.tasks}),
            Call("TaskThemes.score", g.model.score, {"tasks": g.tasks},
                 {"tasks": lambda v: v is g.tasks}),
            Call("TaskThemes.fit", ts.TaskThemes().fit, {"tasks": g.pool}, {},
                 skip=lambda v: isinstance(v, ts.TaskSet)),
            Call("Forecaster", lambda **k: ts.Forecaster(**k) and None,
                 {"model": g.model, "train": g.model.embed(g.tasks), "learner": "x",
                  "confidence": 0.9},
                 {"model": lambda v: v is g.model, "train": anything,
                  "learner": lambda v: isinstance(v, str),
                  "confidence": number(0.5, 0.999)}),
        ]  # fmt: skip
    return result


_KINDS = ("kl", "kl_reverse", "jeffreys", "hellinger", "bhattacharyya")
_RULES = ("nearest", "coverage", "facility", "random")


def _long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 10**4 < value <= 10**6


def _kept(ground: Ground, name: str, save: Callable[[Path], None]) -> Path:
    path = ground.folder / name
    if not path.exists():
        save(path)
    return path


def _drawn(tasks: ts.TaskSet) -> Any:
    return tasks.pool_rows(slice(0, 3)).support if len(tasks) else tasks.classes


def odd_argument(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A public call with one argument that is not what it should be, or only just."""
    known = calls(ground, fits)
    call = known[int(rng.integers(len(known)))]
    name = list(call.given)[int(rng.integers(len(call.given)))]
    values = odd_values(ground)
    value = values[int(rng.integers(len(values)))]
    if call.skip(value):
        value = object()
    given = {**call.given, name: value}
    valid = call.good.get(name, nothing)

    def verdict(result: Any) -> str:
        return ACCEPTED if valid(value) and _finite(result) else WRONG

    shown = " ".join(repr(value).split())[:60]
    return Case(f"{call.name}({name}={shown})", lambda: call.call(**given), verdict)


# -- odd commands ---------------------------------------------------------------------------------

_NUMBERS = ("0", "-1", "nan", "inf", "2.5", "x", "", "1e9", "9" * 30, "3", "5-3", "2-3", "all", "ü")
_PLACES = (
    "", ".", "..", "/", "/dev/null", "/dev/null/x.parquet", "/proc/x.parquet", "nowhere/../x.csv",
    "~nobody-here/x.parquet", "a" * 300 + ".parquet", "\udcff.parquet", "ü→.parquet", "x", "x.csv",
    "circle/x.parquet", "file/x.parquet", "folder", "e.parquet", "t.parquet", "x.json", "x.png",
)  # fmt: skip


def odd_command(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A command line with an odd value for one of its options."""
    place = ground.new("cli")
    np.savez(place / "own.npz", X=ground.X, y=ground.y)
    ground.tasks.save(place / "t.parquet")
    ground.embedded.save(place / "e.parquet")
    (place / "file").write_text("x", encoding="utf-8")
    _write(place / "d.csv", "distance,x\n" + "".join(f"{i / 9},{1 - i / 20}\n" for i in range(20)))
    (place / "circle").symlink_to("circle")
    (place / "folder").mkdir()
    _write(place / "s.toml", to_toml(config_from(TINY)).replace("n_way = 3", "n_way = 1"))
    commands: list[tuple[str, dict[str, Any], str]] = [
        ("tasks own.npz", {"--n-tasks": whole(1, 10**7), "--n-way": span(2, 24),
                           "--n-shot": span(1, 8), "--n-query": whole(0, 3), "--split": nothing,
                           "--seed": seed, "--out": None},
         "--n-tasks 3 --n-shot 1 --out o.parquet"),
        ("compare e.parquet e.parquet", {"--out": None, "--similarity": choice("themes"),
                                         "-k": whole(1)}, ""),
        ("diagram d.csv", {"--n-bins": whole(1), "--bins": choice("paper", "quantile"),
                           "--accuracy": choice("x"), "--distance": nothing, "--seed": seed,
                           "--out": None}, ""),
        ("nearest", {"-k": whole(1, 60), "--task": whole(0, 59), "--catalogue": None,
                     "--query": None}, "--catalogue e.parquet --query e.parquet --task 1"),
        ("select e.parquet e.parquet", {"--budget": whole(1, 60), "--rule": choice(*_RULES),
                                        "--seed": seed, "--max-shared": whole(0), "--out": None,
                                        "--out-tasks": None, "--tasks": None},
         "--budget 3 --out o.json"),
        ("data show own.npz", {"--out": None, "--split": nothing}, ""),
        ("data save own.npz", {"--out": None, "--min-samples": whole(1, 8), "--deal": seed,
                               "--image-size": nothing, "--option": nothing, "--encoder": nothing,
                               "--split-file": None}, "--out o"),
        ("fit own.npz", {"--n-tasks": nothing, "--set": nothing, "--tasks": None},
         "--n-way 99 --out o"),
        ("embed nowhere own.npz", {"--out": None, "--n-tasks": nothing}, "--out o.parquet"),
        ("run", {"--learners": nothing, "--set": nothing, "--preset": nothing, "--seed": nothing,
                 "--out": None, "--data": None, "--target": None}, "--config s.toml --out o"),
        ("report", {"--out": None}, "folder"),
        ("advise --data own.npz", {"--target": None, "--budget": nothing}, "--target nowhere"),
        ("forecast nowhere own.npz", {"--out": None, "--n-tasks": nothing, "--seed": nothing},
         "--forecaster nowhere"),
    ]  # fmt: skip
    words, options, rest = commands[int(rng.integers(len(commands)))]
    option = list(options)[int(rng.integers(len(options)))]
    values = _PLACES if options[option] is None else (*_NUMBERS, ",", "x,y", "\udcff")
    value = values[int(rng.integers(len(values)))]
    argv = [*words.split(), *_without(option, rest.split()), option, value]

    def verdict(outcome: tuple[int, str]) -> str:
        code, said = outcome
        if "Traceback" in said:
            return TRACEBACK
        if code == 0:
            good = options[option] is None or _means(options[option], value)
            return ACCEPTED if good else WRONG
        return CLEAR if said.strip() else TRACEBACK

    return Case(f"taskscape {ascii(argv)[:150]}", lambda: in_process(argv, place), verdict)


def _without(option: str, words: list[str]) -> list[str]:
    if option not in words:
        return words
    at = words.index(option)
    return words[:at] + words[at + 2 :]


def _means(valid: Callable[[Any], bool], text: str) -> bool:
    """Whether a text on the command line stands for a valid value."""
    low, dash, high = text.partition("-")
    readings: list[Any] = [text]
    with contextlib.suppress(ValueError):
        readings.append(int(text))
    with contextlib.suppress(ValueError):
        if dash:
            readings.append((int(low), int(high)))
    return text == "all" or any(valid(reading) for reading in readings)


def in_process(argv: list[str], place: Path) -> tuple[int, str]:
    """Run a command in this process, in that folder; its exit code and what it said."""
    from taskscape.cli import main

    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, there, arguments = Path.cwd(), os.environ.copy(), sys.argv
    code = 0
    try:
        os.chdir(place)
        sys.argv = ["taskscape", *argv]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.argv = arguments
        os.chdir(before)
        os.environ.clear()
        os.environ.update(there)
    said.flush()
    return code, said.buffer.getvalue().decode()


# -- odd surroundings -----------------------------------------------------------------------------


def odd_surroundings(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A good command in a process of its own whose surroundings are hostile."""
    place = ground.new("around")
    np.savez(place / "own.npz", X=ground.X, y=ground.y)
    ground.tasks.save(place / "t.parquet")
    ground.embedded.save(place / "e.parquet")
    tasks = ["tasks", "own.npz", "--n-tasks", "3", "--n-shot", "1", "--out", "o.parquet"]
    chosen = ["select", "e.parquet", "e.parquet", "--budget", "3"]
    show = ["data", "show", "own.npz"]
    ways: list[tuple[str, list[str], dict[str, Any]]] = [
        ("full output", ["data"], {"stdout": "/dev/full"}),
        ("full output", tasks, {"stdout": "/dev/full"}),
        ("full output", ["--help"], {"stdout": "/dev/full"}),
        ("ASCII only", ["data"], {"env": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}}),
        ("ASCII only", ["fit", "--help"], {"env": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}}),
        ("ASCII only", chosen, {"env": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}}),
        ("no such device", chosen, {"env": {"JAX_PLATFORMS": "nothing"}}),
        ("no such backend of pictures", show, {"env": {"MPLBACKEND": "nothing"}}),
        ("no room", tasks, {"room": 16}),
        ("no room", [*chosen, "--out", "o.json"], {"room": 16}),
        ("folder gone", tasks, {"gone": True}),
        ("folder gone", ["data"], {"gone": True}),
        ("no such cache", show, {"env": {"TASKSCAPE_CACHE": "/dev/null/x"}}),
        ("no such home", show, {"env": {"TASKSCAPE_CACHE": "~nobody-here/x"}}),
        ("no output at all", ["data"], {"closed": 1}),
        ("nowhere to say it", tasks, {"closed": 2}),
        ("no such data", ["data"], {"env": {"TASKSCAPE_DATA": "\udcff"}}),
    ]
    words, argv, around = ways[int(rng.integers(len(ways)))]

    def verdict(outcome: tuple[int, str]) -> str:
        code, said = outcome
        if "Traceback" in said or "Exception ignored" in said:
            return TRACEBACK
        return ACCEPTED if code == 0 else CLEAR if "error" in said.lower() else TRACEBACK

    return Case(f"{words}: {' '.join(argv)}", lambda: _in_own_process(argv, place, around), verdict)


def _in_own_process(argv: list[str], place: Path, around: dict[str, Any]) -> tuple[int, str]:
    def prepare() -> None:
        if "room" in around:
            resource.setrlimit(resource.RLIMIT_FSIZE, (around["room"], around["room"]))
        if "closed" in around:
            os.close(around["closed"])
        if around.get("gone"):
            gone = place / "gone"
            gone.mkdir()
            os.chdir(gone)
            gone.rmdir()

    source = str(Path(ts.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    with Path(around.get("stdout", os.devnull)).open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, "-c", "from taskscape.cli import main; main()", *argv],
            cwd=place, env={**env, **around.get("env", {})}, stdout=out, stderr=subprocess.PIPE,
            preexec_fn=prepare, check=False,
        )  # fmt: skip
    return done.returncode, done.stderr.decode(errors="replace")


# -- files with a slip of the pen -----------------------------------------------------------------


def slipped_csv(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A CSV file of a user with one slip in it; what is accepted must have all rows and labels."""
    n, way = int(rng.integers(6, 40)), int(rng.integers(2, 6))
    labels = [f"c{i % way}" for i in range(n)]
    name, line_end, by = ["label", "x1", "x2"], "\n", ","
    at = int(rng.integers(n))
    slips = (
        "none", "no header", "numbers alone", "open quote", "short row", "long row", "padded",
        "tabs", "semicolons", "returns", "mark", "repeated header", "formula", "two splits",
        "empty label", "two names", "comma in numbers", "quoted", "blank lines", "spaces",
        "late text",
    )  # fmt: skip
    slip = str(rng.choice(slips))
    if slip in ("padded", "numbers alone"):
        zeros = 3 if slip == "padded" else 1
        labels = [str(i % way).zfill(1 + i % zeros) for i in range(n)]
    rows = [[label, f"{rng.normal():.3f}", f"{rng.normal():.3f}"] for label in labels]
    if slip == "formula":
        rows[at][0] = "=1+1"
    elif slip == "empty label":
        rows[at][0] = ""
    elif slip == "short row":
        rows[at].pop()
    elif slip == "long row":
        rows[at].append("1")
    elif slip == "repeated header":
        rows.insert(at, list(name))
    elif slip == "two splits":
        name, rows = [*name, "split"], [[*row, "train+val"] for row in rows]
    elif slip == "two names":
        name[2] = "x1"
    elif slip == "comma in numbers":
        rows = [[row[0], *(f'"{v.replace(".", ",")}"' for v in row[1:])] for row in rows]
    elif slip == "late text":
        rows[at][2] = "n/a?"
    elif slip == "open quote":
        side = int(rng.integers(3))
        rows[at][side] = f'"{rows[at][side]}'
    elif slip == "quoted":
        rows = [[f'"{v}"' for v in row] for row in rows]
    elif slip == "spaces":
        rows = [[f"{v} " if i else v for i, v in enumerate(row)] for row in rows]
    by = {"tabs": "\t", "semicolons": ";"}.get(slip, by)
    line_end = "\r\n" if slip == "returns" else "\n\n" if slip == "blank lines" else line_end
    head = [] if slip in ("no header", "numbers alone") else [name]
    text = ("\ufeff" if slip == "mark" else "") + line_end.join(
        by.join(row) for row in [*head, *rows]
    )
    path = ground.new("slip") / "own.csv"
    path.write_text(text + line_end, encoding="utf-8", newline="")
    wanted = {row[0].strip('"') for row in rows}

    def verdict(pool: ts.ClassPool) -> str:
        whole = pool.n_samples == n and set(pool.class_names) == wanted
        dims = 1 if slip in ("late text",) else 2
        refused = slip in ("two splits", "two names", "repeated header", "open quote", "no header")
        right = whole and pool.sample_shape == (dims,) and not refused
        return ACCEPTED if right else WRONG

    given: dict[str, Any] = (
        {"label_column": "0"} if slip == "numbers alone" and rng.random() < 0.5 else {}
    )
    words = f"own.csv, {slip}, {n} rows of {way} classes, row {at}"
    return Case(words, lambda: ts.load_pool(path, **given), verdict)


# -- numbers of NumPy ----------------------------------------------------------------------------


def numpy_number(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """A number of NumPy where one of Python's is meant: what comes of it is the same, and saved."""
    place, kinds = ground.new("number"), (np.int64, np.int32, np.int16, np.int8, np.uint8)
    kind = kinds[int(rng.integers(len(kinds)))]
    value = int(rng.integers(1, 120))

    def drawn(**given: Any) -> str:
        tasks = ts.sample_tasks(ground.pool, **{"n_tasks": 5, "n_way": 2, "n_shot": 1, **given})
        tasks.save(place / "t.parquet")
        return digest((_tasks(ground, place / "t.parquet"), tasks.with_samples(1).n_query))

    def chosen(**given: Any) -> str:
        options = {"n": 5, "train_classes": ground.tasks, **given}
        ts.select(ground.lam[:4], ground.lam, **options).save(place / "s.json")
        return digest(Selection.load(place / "s.json").to_dict())

    def settings(cls: Any) -> Callable[..., str]:
        return lambda **given: repr(cls(**given))

    calls: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
        (drawn, ("n_tasks", "n_way", "n_shot", "n_query", "seed")),
        (chosen, ("n", "max_shared", "seed")),
        (settings(TrainConfig), ("updates", "batch_size", "learning_rate", "clip_norm")),
        (settings(FitConfig), ("task_themes", "image_themes", "delta", "max_iter", "max_tasks")),
        (settings(PrepareConfig), ("pca", "edges")),
        (settings(AdvisorSettings), ("candidates", "n_way", "components", "seed")),
    ]  # fmt: skip
    call, names = calls[int(rng.integers(len(calls)))]
    name = names[int(rng.integers(len(names)))]

    def both() -> tuple[Any, Any]:
        outcomes = []
        for number in (value, kind(value)):
            try:
                outcomes.append(call(**{name: number}))
            except ts.TaskscapeError as error:
                outcomes.append(str(error))
        return outcomes[0], outcomes[1]

    words = f"{call.__qualname__.split('.')[-1]}({name}={kind.__name__}({value}))"
    return Case(words, both, lambda outcome: ACCEPTED if outcome[0] == outcome[1] else WRONG)


# -- files of users in the way --------------------------------------------------------------------


def users_file(ground: Ground, rng: np.random.Generator, fits: bool) -> Case:
    """Something of a user's where a result is to be written; it must still be there afterwards."""
    place = ground.new("own")
    target, other = place / "out", place / "elsewhere"
    writers = [kind for kind in _FILES if kind.name not in _BY_OTHERS]
    writer = writers[int(rng.integers(len(writers)))]
    different = [kind for kind in writers if kind is not writer]
    different = [
        k for k in different if {k.name, writer.name} != {"catalogue", "embeddings.parquet"}
    ]
    there: dict[str, Callable[[Path], Any]] = {
        "notes": lambda p: p.write_text("mine", encoding="utf-8"),
        "bytes": lambda p: p.write_bytes(rng.bytes(200)),
        "JSON": lambda p: p.write_text(json.dumps({"what": "mine"}), encoding="utf-8"),
        "table": lambda p: pq.write_table(_own_table(ground), p),
        "CSV": lambda p: _save_csv(ground, p),
        "pictures": lambda p: _save_pictures(ground, p),
        "another result": lambda p: different[int(rng.integers(len(different)))].save(ground, p),
    }  # fmt: skip
    what, linked = str(rng.choice(list(there))), bool(rng.random() < 0.3)
    there[what](other if linked else target)
    if linked:
        target.symlink_to(other)
    before = _all_bytes(place)

    def act() -> str:
        try:
            writer.save(ground, target)
        except ts.TaskscapeError:
            return CLEAR
        return HARMLESS

    def verdict(outcome: str) -> str:
        return outcome if _all_bytes(place).items() >= before.items() else WRONG

    return Case(f"{writer.name} over {what}{', by a link' if linked else ''}", act, verdict)


_BY_OTHERS = (
    "own.npz", "own.parquet", "own.csv", "own.arrow", "own.zip", "pictures", "study.toml",
    "ledger.jsonl",
)  # fmt: skip


def _all_bytes(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


KINDS: Mapping[str, tuple[float, Callable[[Ground, np.random.Generator, bool], Case]]] = {
    "damaged files": (0.3, damaged_file),
    "odd arguments": (0.25, odd_argument),
    "odd commands": (0.14, odd_command),
    "slips in files": (0.1, slipped_csv),
    "numbers of NumPy": (0.1, numpy_number),
    "files in the way": (0.1, users_file),
    "odd surroundings": (0.01, odd_surroundings),
}
"""What is tried, and how often."""
