"""Reading task embeddings, and the Dirichlet formulas that compare them, in float64."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from scipy.special import psi

from taskscape.arguments import as_numbers, check_number
from taskscape.embeddings.blocks import log_beta
from taskscape.errors import DataError

Tasks: TypeAlias = Any
"""λ as an array (tasks, L) or (members, tasks, L), or anything with such an array as ``.lam``."""

_ROUNDING, _ABSURD = 1e-9, 1e12
"""No typical distance is smaller than the one, which is rounding, or larger than the other."""


def expected_log(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any L"]:
    r"""Expected logarithm of a Dirichlet variable, the gradient of ``log_beta``.

    .. math:: E_\lambda[\ln\phi_l] = \psi(\lambda_l) - \psi(\sum_j \lambda_j)
    """
    return np.asarray(psi(lam) - psi(lam.sum(-1, keepdims=True)))


def kl(a: Float[np.ndarray, "*#any L"], b: Float[np.ndarray, "*#any L"]) -> np.ndarray:
    r"""Kullback-Leibler divergence from Dirichlet(a) to Dirichlet(b).

    .. math:: KL[a \| b] = \ln B(b) - \ln B(a) + \sum_l (a_l - b_l)\, E_a[\ln\phi_l]
    """
    values = log_beta(b) - log_beta(a) + ((a - b) * expected_log(a)).sum(-1)
    return np.maximum(values, 0.0)


class AffineKL(NamedTuple):
    r"""KL from queries a to any task b, which is affine in (b, F(b)).

    .. math:: KL[a \| b] = F(b) - F(a) + g \cdot (a - b), \quad
        F(b) = \sum_e w_e \ln B(b_e), \quad g = (w_e E_{a_e}[\ln\phi])_e

    λ has the members of an ensemble side by side; w are their weights.
    """

    lam: Float[np.ndarray, "queries dims"]
    g: Float[np.ndarray, "queries dims"]
    F: Float[np.ndarray, "queries"]

    @property
    def constant(self) -> Float[np.ndarray, "queries"]:
        """What does not depend on the task b."""
        return (self.lam * self.g).sum(axis=1) - self.F

    def some(self, which: Int[np.ndarray, "some"] | slice) -> "AffineKL":
        """The same for some of the queries."""
        return AffineKL(*(part[which] for part in self))

    def to_all(
        self, b: Float[np.ndarray, "tasks dims"], F: Float[np.ndarray, "tasks"]
    ) -> Float[np.ndarray, "queries tasks"]:
        """From every query to every task; rounding may leave a little less than zero."""
        return self.constant[:, None] + F - self.g @ b.T

    def to_own(
        self, b: Float[np.ndarray, "queries some dims"], F: Float[np.ndarray, "queries some"]
    ) -> Float[np.ndarray, "queries some"]:
        """From every query to tasks of its own, pair by pair: equal tasks are equally far."""
        linear = ((self.lam[:, None] - b) * self.g[:, None]).sum(-1)
        return np.maximum(F - self.F[:, None] + linear, 0.0)


def affine_kl(
    lam: Float[np.ndarray, "members queries L"], weights: Float[np.ndarray, "members"]
) -> AffineKL:
    """KL from these queries, summed over members with these weights."""
    g = side_by_side(expected_log(lam) * weights[:, None, None])
    return AffineKL(side_by_side(lam), g, sum_members(log_beta(lam), weights))


def sum_members(
    values: Float[np.ndarray, "members *any"], weights: Float[np.ndarray, "members"]
) -> Float[np.ndarray, "*any"]:
    """The weighted sum over members; a matrix product would not round all tasks alike."""
    return np.asarray(sum(w * of_member for w, of_member in zip(weights, values, strict=True)))


def side_by_side(lam: Float[np.ndarray, "members tasks L"]) -> Float[np.ndarray, "tasks dims"]:
    """The members of an ensemble as one row for each task."""
    return lam[0] if len(lam) == 1 else np.concatenate(list(lam), axis=1)


def read_lam(tasks: Tasks, name: str) -> Float[np.ndarray, "members tasks L"]:
    """λ of the tasks as (members, tasks, L) in float64, checked; one fit has one member."""
    given = getattr(tasks, "lam", tasks)
    lam = as_numbers(given)
    if lam.shape == (0,):
        raise DataError(
            f"{name} is {type(given).__name__}; expected λ as an array (tasks, task-themes) or "
            "(members, tasks, task-themes), or embedded tasks that have one as .lam."
        )
    if lam.ndim == 2:
        lam = lam[None]
    if lam.ndim != 3 or lam.shape[0] == 0 or lam.shape[-1] < 2:
        raise DataError(
            f"{name} has shape {lam.shape}; expected λ of shape (tasks, task-themes) or "
            "(members, tasks, task-themes) with at least 1 member and 2 task-themes."
        )
    good = (lam > 0) & (lam < np.inf)
    if not good.all():
        member, task, theme = np.argwhere(~good)[0]
        raise DataError(
            f"{name} holds λ = {lam[member, task, theme]:g} at task {task}, task-theme {theme}; "
            "concentrations are positive and finite. Pass the lam of embedded tasks."
        )
    return lam


def ndim_of(tasks: Tasks) -> int:
    """How many axes the tasks' λ has as it was given; 0 where it is no array."""
    given: Any = getattr(tasks, "lam", tasks)
    try:
        return np.ndim(given)
    except ValueError:  # lists of different lengths
        return 0


def check_together(
    test: Float[np.ndarray, "members_a tasks_a L_a"],
    train: Float[np.ndarray, "members_b tasks_b L_b"],
    names: tuple[str, str] = ("test", "train"),
) -> None:
    """Raise an error unless both come from models of the same shape and neither is empty."""
    for lam, name in ((test, names[0]), (train, names[1])):
        if lam.shape[1] == 0:
            raise DataError(f"{name} has no tasks.")
    for axis, what, same in ((2, "task-themes", "model"), (0, "members", "ensemble")):
        if test.shape[axis] != train.shape[axis]:
            raise DataError(
                f"{names[0]} has {test.shape[axis]} {what} and {names[1]} {train.shape[axis]}; "
                f"embed both with the same {same}."
            )


def read_chunks(
    train: Tasks | Iterable[Tasks], name: str
) -> Iterator[Float[np.ndarray, "members some L"]]:
    """The chunks of a training set given as one array or posterior, or as an iterable of them.

    A list whose entries are arrays of λ is an iterable of chunks; a list of numbers is an array.
    """
    streamed = _is_stream(train)
    for i, chunk in enumerate(train if streamed else [train]):
        lam = read_lam(chunk, f"{name}, chunk {i}," if streamed else name)
        if lam.shape[1]:
            yield lam


def _is_stream(train: object) -> bool:
    if hasattr(train, "lam") or isinstance(train, np.ndarray) or hasattr(train, "__array__"):
        return False
    if isinstance(train, list | tuple):
        return bool(train) and (hasattr(train[0], "lam") or np.ndim(train[0]) >= 2)
    return isinstance(train, Iterable)


def read_scales(scales: object, members: int) -> Float[np.ndarray, "members"]:
    """Check the typical distance of each member that an ensemble's distances are divided by."""
    values = np.atleast_1d(as_numbers(scales))
    if values.shape != (members,) or not ((values > _ROUNDING) & (values < _ABSURD)).all():
        raise DataError(
            f"scales={np.array2string(values, threshold=5)} must be {members} typical distances "
            f"between {_ROUNDING:g} and {_ABSURD:g}, one for each member; "
            "member_scales(test, train) gives them."
        )
    return values


def combine_members(
    distances: Float[np.ndarray, "members *any"], scales: object = None
) -> Float[np.ndarray, "*any"]:
    r"""Average the distances of an ensemble, each divided by its member's typical distance.

    .. math:: D = \frac{1}{E} \sum_e D_e / s_e, \quad s_e = \text{mean}(D_e) \text{ unless given}

    Themes of two fits are not aligned, so distances are averaged, never λ. A single fit is left
    in nats unless ``scales`` is given.
    """
    return np.asarray(np.tensordot(weights_of(distances, scales), distances, axes=1))


def weights_of(
    distances: Float[np.ndarray, "members *any"], scales: object
) -> Float[np.ndarray, "members"]:
    """What the distances of each member are multiplied by before they are summed."""
    members = len(distances)
    if scales is not None:
        return member_weights(read_scales(scales, members))
    if members == 1:
        return np.ones(1)
    return member_weights(distances.reshape(members, -1).mean(axis=1))


def member_weights(scales: Float[np.ndarray, "members"]) -> Float[np.ndarray, "members"]:
    """The weight of each member's distance: 1 / (members · scale)."""
    return 1 / (len(scales) * typical(scales))


def typical(means: Float[np.ndarray, "members"]) -> Float[np.ndarray, "members"]:
    """The scale of each member from its mean distance; one that is mere rounding counts as 1.

    Divided by their mean, the roundings of a member whose tasks all fall on one point would weigh
    as much as the distances of the others.
    """
    return np.where(means > _ROUNDING, means, 1.0)


def normalise_ways(
    tasks: Tasks, *, delta: Any = 0.5, n_way: float | int = 5
) -> Float[np.ndarray, "members tasks L"] | Float[np.ndarray, "tasks L"]:
    r"""The posteriors as if every task had ``n_way`` classes in its own proportions of themes.

    .. math:: \lambda' = \delta + (\lambda - \delta)\, \frac{n}{\sum_l (\lambda_l - \delta_l)}

    Every class of a task adds one to the sum of λ, so a task of many classes has a narrower
    posterior, and KL sees that. After this, tasks with equal proportions have equal λ whatever
    their number of classes. ``delta`` is the model's prior: a number, (L,), or (members, L).
    """
    lam = read_lam(tasks, "tasks")
    prior = as_numbers(delta)
    if prior.size == 0 or not ((prior > 0) & (prior < np.inf)).all():
        raise DataError(f"delta={delta} must be positive; use the delta the model was fitted with.")
    check_number(n_way, "n_way", 0, open_="low")
    prior = prior[:, None] if prior.ndim == 2 else prior
    try:
        counts = lam - prior
    except ValueError:
        raise DataError(
            f"delta has shape {np.shape(delta)}; expected a number, ({lam.shape[2]},) or "
            f"({lam.shape[0]}, {lam.shape[2]})."
        ) from None
    total = counts.sum(axis=-1, keepdims=True)
    if counts.min(initial=0.0) < -1e-3 or total.min(initial=1.0) <= 0:
        raise DataError(
            f"λ goes down to {lam.min():g}, below delta={np.array2string(prior.ravel())}, which "
            "no posterior does; use the delta the model was fitted with."
        )
    scaled = prior + np.maximum(counts, 0.0) * (n_way / total)
    return scaled if ndim_of(tasks) == 3 else scaled[0]
