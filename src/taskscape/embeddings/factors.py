r"""What the posterior of a task is made of: factors, and the divergence between two of a kind.

Every factor is of an exponential family, so that its KL divergence follows from one function, the
log-normaliser F of its numbers:

.. math:: KL[a \| b] = F(b) - F(a) - \nabla F(a) \cdot (b - a)

That is affine in (b, F(b)) of the second task: the mean over many tasks needs only their means, and
the nearest task is the one with the largest inner product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, psi

BLOCK = 4096
"""Tasks of a block, which is a row group of a Parquet file: the least that is read of it."""
TASK_THEMES = "task_themes"
"""The factor that holds λ; those of an ensemble are task_themes_1, task_themes_2 and so on."""


def log_beta(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any"]:
    r"""Logarithm of the Dirichlet normaliser.

    .. math:: \ln B(\lambda) = \sum_l \ln\Gamma(\lambda_l) - \ln\Gamma(\sum_l \lambda_l)
    """
    return np.asarray(gammaln(lam).sum(-1) - gammaln(lam.sum(-1)))


def expected_log(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any L"]:
    r"""Expected logarithm of a Dirichlet variable, the gradient of ``log_beta``.

    .. math:: E_\lambda[\ln\phi_l] = \psi(\lambda_l) - \psi(\sum_j \lambda_j)
    """
    return np.asarray(psi(lam) - psi(lam.sum(-1, keepdims=True)))


def half_square(m: Float[np.ndarray, "*any P"]) -> Float[np.ndarray, "*any"]:
    r"""The log-normaliser of a Gaussian of mean m and unit covariance, up to a constant.

    .. math:: F(m) = \tfrac12 \lVert m \rVert^2, \quad KL[a \| b] = \tfrac12 \lVert a - b \rVert^2
    """
    return np.asarray((m * m).sum(-1) / 2)


@dataclass(frozen=True)
class Factor:
    """One factor of the posterior of tasks."""

    name: str
    kind: str
    """``dirichlet``, whose numbers are concentrations, or ``gaussian``, whose are a mean."""
    size: int
    share: float = 1.0
    """Its part in the distance between tasks, the parts of all factors making 1; 0 leaves it out.
    """
    scale: float = 1.0
    """What its KL divergence is divided by: its mean between training tasks, or 1 for nats."""
    half: bool = False
    """Whether its numbers are kept in half precision."""

    @property
    def weight(self) -> float:
        """Of its KL divergence in the distance."""
        return self.share / self.scale

    def log_normaliser(self, values: Float[np.ndarray, "*any size"]) -> Float[np.ndarray, "*any"]:
        """F, from which the divergence follows."""
        return log_beta(values) if self.kind == "dirichlet" else half_square(values)

    def gradient(self, values: Float[np.ndarray, "*any size"]) -> Float[np.ndarray, "*any size"]:
        """The gradient of F."""
        return expected_log(values) if self.kind == "dirichlet" else values


def split_columns(
    values: Float[np.ndarray, "*any columns"], factors: Sequence[Factor]
) -> list[Float[np.ndarray, "*any _"]]:
    """The numbers of each factor, which stand side by side."""
    ends = list(accumulate(f.size for f in factors))
    return [values[..., end - f.size : end] for f, end in zip(factors, ends, strict=True)]


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posteriors of some tasks: the numbers of all factors side by side, and F of each."""

    values: Float[np.ndarray, "tasks columns"]
    logs: Float[np.ndarray, "tasks factors"]
    factors: tuple[Factor, ...]
    ndim: ClassVar[int] = 2
    """Tasks by columns, for NumPy."""

    @staticmethod
    def of(values: Float[np.ndarray, "tasks columns"], factors: Sequence[Factor]) -> "Posterior":
        """From the numbers alone."""
        logs = np.empty((len(values), len(factors)))
        for begin in range(0, len(values), BLOCK):
            rows = slice(begin, begin + BLOCK)
            parts = split_columns(values[rows].astype(np.float64), factors)
            for i, (factor, part) in enumerate(zip(factors, parts, strict=True)):
                logs[rows, i] = factor.log_normaliser(part)
        return Posterior(values, logs, tuple(factors))

    def __getitem__(self, rows: Any) -> "Posterior":
        """Those of some of the tasks."""
        return Posterior(self.values[rows], self.logs[rows], self.factors)

    def __len__(self) -> int:
        return len(self.values)

    def only(self, kept: Sequence[Factor]) -> "Posterior":
        """Some of the factors alone."""
        which = [i for i, f in enumerate(self.factors) if f in kept]
        parts = split_columns(self.values, self.factors)
        values = (
            parts[which[0]] if len(which) == 1 else np.concatenate([parts[i] for i in which], 1)
        )
        return Posterior(values, self.logs[:, which], tuple(self.factors[i] for i in which))

    @property
    def log_normaliser(self) -> Float[np.ndarray, "tasks"]:
        r""":math:`F = \sum_f w_f F_f`; a matrix product would not round all tasks alike."""
        return np.asarray(sum(f.weight * F for f, F in zip(self.factors, self.logs.T, strict=True)))

    @property
    def gradient(self) -> Float[np.ndarray, "tasks columns"]:
        r"""The gradient of :math:`\sum_f w_f F_f` at each task."""
        parts = split_columns(self.values.astype(np.float64), self.factors)
        each = zip(self.factors, parts, strict=True)
        return np.concatenate([f.weight * f.gradient(part) for f, part in each], axis=1)


@dataclass(frozen=True, eq=False)
class Sums:
    """What a mean distance needs to know of many tasks: how many, and the sums of (b, F(b))."""

    tasks: int
    values: Float[np.ndarray, "columns"]
    logs: Float[np.ndarray, "factors"]

    @staticmethod
    def of(posterior: Posterior) -> "Sums":
        """The sums of these tasks."""
        values = posterior.values.sum(axis=0, dtype=np.float64)
        return Sums(len(posterior), values, posterior.logs.sum(axis=0))

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.tasks + other.tasks, self.values + other.values, self.logs + other.logs)
