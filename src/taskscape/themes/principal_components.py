"""Principal components of samples, exactly where there are few dimensions, else by block Lanczos.

All work is done in pieces of well below a second, so that an interrupt is heard.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["PrincipalComponents", "principal_components"]

_EXACT_UP_TO = 1024
"""Dimensions, or samples, of which the whole covariance, or Gram matrix, is decomposed."""
_SPARE = 10
"""Columns of a block beyond the components asked for; they speed up convergence."""
_MOST_BLOCKS = 24
_TOLERANCE = 1e-4
"""Of the residual of a component, relative to its variance (but see ``_converged``)."""
_ROUNDING = 1e-5
"""What is smaller than this part of a vector, or of the largest of many, may be rounding."""
_OPERATIONS_AT_ONCE = 1 << 32
_TIE = 1e-3


class PrincipalComponents(NamedTuple):
    """Orthonormal directions of largest variance, the largest first."""

    components: Float[np.ndarray, "k dims"]
    explained: float
    """Share of the total variance."""


def principal_components(X: Float[np.ndarray, "n dims"], k: int) -> PrincipalComponents:
    r"""The k leading eigenvectors of the covariance of centred samples.

    .. math:: X^\top X\, v_i = \lambda_i v_i

    The first of the entries that are largest, to a thousandth, in absolute value is positive, so
    that the sign does not depend on how the vectors were found. The same samples give the same
    components.
    """
    n, dims = X.shape
    total = sum(float(np.square(X[rows]).sum(dtype=np.float64)) for rows in _rows(X, k))
    if dims <= _EXACT_UP_TO:
        values, vectors = _leading(_in_pieces(X.T), k)
    elif n <= _EXACT_UP_TO:
        values, U = _leading(_in_pieces(X), k)
        # directions without variance, if any, come out as an orthonormal rest
        vectors, _ = np.linalg.qr(X.T @ U.astype(X.dtype))
    else:
        values, vectors = _block_lanczos(X, k)
    size = np.abs(vectors)
    first = np.argmax(size >= (1 - _TIE) * size.max(axis=0), axis=0)
    signs = np.where(vectors[first, np.arange(k)] < 0, -1, 1)
    return PrincipalComponents((vectors * signs).T, float(np.maximum(values, 0).sum() / total))


def _block_lanczos(
    X: Float[np.ndarray, "n dims"], k: int
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "dims k"]]:
    r"""Rayleigh-Ritz in the space of a block and its images under the covariance.

    .. math:: \mathrm{span}\{ X^\top G, (X^\top X) X^\top G, (X^\top X)^2 X^\top G, \dots \}

    with G random, but the same at every call. It needs a few products with X, no matrix of dims ×
    dims, and reaches the accuracy of an exact solver where components differ in variance.

    Golub and Underwood 1977; Musco and Musco 2015.
    """
    n, dims = X.shape
    rng = np.random.default_rng(0)
    start = rng.standard_normal((n, min(k + _SPARE, n, dims))).astype(X.dtype)
    basis = images = np.empty((dims, 0), dtype=X.dtype)
    T = np.empty((0, 0))
    fresh = _orthonormal(basis, _times_transposed(X, start))
    for _ in range(_MOST_BLOCKS):
        basis = np.concatenate([basis, fresh], axis=1)
        image = _times_transposed(X, _times(X, fresh))
        images = np.concatenate([images, image], axis=1)
        products = (basis.T @ image).astype(np.float64)
        T = np.block([[T, products[: len(T)]], [products.T]])
        values, small = _leading(T, k)
        vectors, moved = basis @ small.astype(X.dtype), images @ small.astype(X.dtype)
        residuals = np.linalg.norm(moved - vectors * values, axis=0)
        if len(values) == k and _converged(values, residuals):
            break
        fresh = _orthonormal(basis, image)
        if fresh.shape[1] == 0 and len(values) < k:  # fewer directions with variance than k
            rest = rng.standard_normal((dims, k - len(values))).astype(X.dtype)
            fresh = _orthonormal(basis, rest)
        if fresh.shape[1] == 0:
            break
    return values, vectors / np.linalg.norm(vectors, axis=0)


def _orthonormal(
    basis: Float[np.ndarray, "dims m"], A: Float[np.ndarray, "dims width"]
) -> Float[np.ndarray, "dims _"]:
    """An orthonormal basis of what the columns of A add to an orthonormal basis."""
    for _ in range(2):  # once is not enough in finite precision
        length = np.linalg.norm(A, axis=0)
        A = A - basis @ (basis.T @ A)
        left = np.linalg.norm(A, axis=0)
        A = A[:, left > _ROUNDING * length] / left[left > _ROUNDING * length]
        values, turn = np.linalg.eigh((A.T @ A).astype(np.float64))
        keep = values > _ROUNDING * values.max(initial=0)
        A = A @ (turn[:, keep] / np.sqrt(values[keep])).astype(A.dtype)
    return A[:, : max(0, len(A) - basis.shape[1])]


def _converged(values: Float[np.ndarray, "k"], residuals: Float[np.ndarray, "k"]) -> bool:
    """Whether residuals are small, or no more than rounding makes of the largest variance."""
    return bool((residuals <= np.maximum(_TOLERANCE * values, 1e-6 * values[0])).all())


def _leading(
    A: Float[np.ndarray, "m m"], k: int
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "m k"]]:
    """The k largest eigenvalues of a symmetric matrix, the largest first, and their vectors."""
    A = A.astype(np.float64)
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]


def _in_pieces(A: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m m"]:
    """A Aᵀ, summed in float64 over pieces of columns."""
    m, n = A.shape
    step = max(1, _OPERATIONS_AT_ONCE // (4 * m * m))
    product = np.zeros((m, m))
    for start in range(0, n, step):
        part = A[:, start : start + step]
        product += part @ part.T
    return product


def _times(
    X: Float[np.ndarray, "n dims"], V: Float[np.ndarray, "dims width"]
) -> Float[np.ndarray, "n width"]:
    return np.concatenate([X[rows] @ V for rows in _rows(X, V.shape[1])])


def _times_transposed(
    X: Float[np.ndarray, "n dims"], U: Float[np.ndarray, "n width"]
) -> Float[np.ndarray, "dims width"]:
    product = np.zeros((X.shape[1], U.shape[1]), dtype=X.dtype)
    for rows in _rows(X, U.shape[1]):
        product += X[rows].T @ U[rows]
    return product


def _rows(X: Float[np.ndarray, "n dims"], width: int) -> list[slice]:
    step = max(16, _OPERATIONS_AT_ONCE // (2 * X.shape[1] * width))
    return [slice(start, start + step) for start in range(0, len(X), step)]
