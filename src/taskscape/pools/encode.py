"""Any network in front of a pool: samples become feature vectors once, and are then cached."""

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import check_whole
from taskscape.errors import DataError
from taskscape.pools.arrays import as_numpy
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.pool import ClassPool
from taskscape.progress import progress_bar

_VERSION = 1
_PROBES = 16
_TOLERANCE = 0.01
"""Largest difference between two answers for one sample, relative to the largest feature."""


def check_encoder(encoder: Any, encoder_name: Any, encoder_batch: Any) -> Any:
    """The function to call; an error if these cannot be used, before anything is loaded."""
    if encoder is None:
        if encoder_name is not None:
            raise DataError(f"encoder_name={encoder_name!r} was given without an encoder.")
        return None
    if isinstance(encoder, str):
        encoder = _imported(encoder)
    if not callable(encoder) and callable(getattr(encoder, "transform", None)):
        encoder = encoder.transform  # a transformer of scikit-learn
    if not callable(encoder):
        raise DataError(
            f"encoder={encoder!r} cannot be called; expected a function from a batch of samples "
            "(n, …) to features (n, dims), its name as 'module:function', or a transformer of "
            "scikit-learn."
        )
    if encoder_name is not None and not isinstance(encoder_name, str):
        raise DataError(f"encoder_name={encoder_name!r}: expected text.")
    check_whole(encoder_batch, "encoder_batch", 1)
    return encoder


def _imported(name: str) -> Any:
    """The encoder of a name such as ``my_module:encode``, also of a module in this folder."""
    module, _, attribute = name.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"encoder={name!r} cannot be imported ({error}). Give module:function, such as "
            "my_network:encode for the function encode of my_network.py in this folder."
        ) from error


def own_encoder(pool: ClassPool) -> Any:
    """The encoder that made a pool's features, where it is known; else None."""
    name = str(pool.info.get("encoder", ""))
    return pool.encoder or (_imported(name) if ":" in name else None)


def encoder_label(encoder: Any) -> str:
    """What an encoder is called if the user does not say: its name, or that of its type."""
    if isinstance(encoder, str):
        return encoder
    if isinstance(encoder, functools.partial):
        return encoder_label(encoder.func)
    named = encoder if hasattr(encoder, "__qualname__") else type(encoder)
    return f"{getattr(named, '__module__', '?')}.{named.__qualname__}"


def encode_pool(
    pool: ClassPool,
    encoder: Any,
    *,
    encoder_name: Any = None,
    encoder_batch: Any = 256,
) -> ClassPool:
    """The pool with each sample replaced by what ``encoder`` makes of it.

    ``encoder`` gets a float32 batch as :meth:`ClassPool.take` gives it, pictures as (n, height,
    width) or (n, height, width, 3) in [0, 1], and returns (n, dims): numpy, JAX, or a torch tensor
    on any device. A fitted transformer of scikit-learn, or a method of one such as
    ``pca.transform``, gets the pixels of each picture in one row. Text such as
    ``"my_module:encode"`` names one to import, which a stored pool remembers.

    Features are cached under the pool's fingerprint, the encoder's name, and its answer to a few of
    the pool's own samples; new weights give other answers, so they never get old features. An
    encoder that answers differently when asked again is refused.

    >>> pool = ClassPool.from_classes({"a": np.ones((3, 2)), "b": np.zeros((4, 2))})
    >>> encode_pool(pool, lambda batch: batch.sum(axis=1, keepdims=True))
    ClassPool('pool': 2 classes, 7 samples of 1 features)
    """
    name = encoder_label(encoder) if encoder_name is None else encoder_name
    encoder = check_encoder(encoder, encoder_name, encoder_batch)
    rows = pool.rows
    names = None if pool.sample_names is None else tuple(pool.sample_names[row] for row in rows)
    answer = _probe(pool, encoder, rows)
    digest = hashlib.blake2b(answer.tobytes(), digest_size=16).hexdigest()
    key = cache_key("encoded", _VERSION, pool.fingerprint, name, answer.shape, digest)
    info = {**pool.info, "encoder": name, "encoded_from": pool.fingerprint}
    info["encoded_shape"] = list(pool.sample_shape)

    def make() -> ClassPool:
        features = np.empty((len(rows), answer.shape[1]), dtype=np.float32)
        with progress_bar("encoding", total=len(rows)) as advance:
            for start in range(0, len(rows), encoder_batch):
                batch = _answer(pool, encoder, rows[start : start + encoder_batch])
                features[start : start + len(batch)] = batch
                advance(len(batch))
        return replace(
            pool, samples=features, starts=np.cumsum(pool.counts) - pool.counts, info=info,
            class_digests=None, sample_names=None, given_rows=None,
        )  # fmt: skip

    # The names and the info of the pool at hand: the same content may have been opened elsewhere.
    return replace(
        cached("encoded", key, make), name=pool.name, info=info, sample_names=names,
        given_rows=None if "sources" in pool.info else pool.given(rows), encoder=encoder,
    )  # fmt: skip


def _answer(
    pool: ClassPool, encoder: Callable[[Any], Any], rows: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "n dims"]:
    """The encoder's features for some rows, checked."""
    batch = pool.take(rows)
    if hasattr(getattr(encoder, "__self__", None), "n_features_in_"):  # as scikit-learn's have
        batch = batch.reshape(len(batch), -1)
    given = f"a float32 batch of shape {batch.shape}"
    try:
        raw = encoder(batch)
    except Exception as error:
        error.add_note(
            f"The encoder was called with {given}. One that wants a row of numbers for each sample "
            "gets it by lambda batch: encoder(batch.reshape(len(batch), -1))."
        )
        raise
    features = as_numpy(raw, "what the encoder returned")
    if features.ndim != 2 or len(features) != len(rows) or features.shape[1] == 0:
        raise DataError(
            f"the encoder returned shape {features.shape} for {given}; expected "
            f"({len(rows)}, dims). Flatten or pool what it returns."
        )
    try:
        features = features.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"the encoder returned {features.dtype}, not numbers.") from error
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if bad.size:
        raise DataError(
            f"the encoder returned NaN or infinite features for {bad.size} of {len(rows)} samples "
            f"(the first is row {rows[bad[0]]} of the pool). Check its weights and its input range."
        )
    return features


def _probe(
    pool: ClassPool, encoder: Callable[[Any], Any], rows: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "probes dims"]:
    """The encoder's answer to a few samples, after making sure that it is a function of each."""
    probes = rows[np.linspace(0, len(rows) - 1, min(_PROBES, len(rows))).astype(np.int64)]
    first, again = _answer(pool, encoder, probes), _answer(pool, encoder, probes)
    if _differ(first, again):
        raise DataError(
            "the encoder answers differently when given the same samples again. Switch off dropout "
            "and other noise (torch: model.eval(); Flax: deterministic or use_running_average)."
        )
    if len(probes) > 2:
        half = np.arange(0, len(probes), 2)[::-1]
        if _differ(first[half], _answer(pool, encoder, probes[half])):
            raise DataError(
                "the encoder's features of a sample depend on the other samples of its batch. "
                "Switch off batch statistics (torch: model.eval(); Flax: use_running_average=True) "
                "or make the encoder treat each sample alone."
            )
    return first


def _differ(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d2"]) -> bool:
    """Whether two answers differ by more than rounding on an accelerator explains."""
    return a.shape != b.shape or bool(np.abs(a - b).max() > _TOLERANCE * np.abs(a).max())
