"""Where tasks come from: sampled with a seed, or every combination of classes, or a stream."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt64

from taskscape.arguments import (
    Seed,
    check_choice,
    check_flag,
    check_kind,
    check_memory,
    check_number,
    check_seed,
    check_whole,
    public,
)
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.pools.pool import few_names
from taskscape.progress import progress_bar
from taskscape.tasks.draws import below, distinct, subkeys, task_keys
from taskscape.tasks.taskset import TaskSet, check_range, check_shots, class_dtype

_WAY, _GROUP, _SHOT, _CLASSES = range(4)
"""What a task's key is asked for besides its samples; each is a stream of numbers of its own."""
_GROUP_WEIGHTS = ("groups", "classes", "sources")
GroupWeights: TypeAlias = str | Mapping[str, float]
"""How likely groups are: a word of the above, or a weight for each group."""
_BYTES_PER_TASK = 40
"""Of its index, key, shots and what is drawn for them, without its classes."""
_CHUNK = 1 << 16
_FIRST_STEP, _LAST_STEP = 1 << 12, 1 << 18
_MOST_TO_ENUMERATE = 1 << 62
_MOST_TO_LIST = 50_000_000


@dataclass(frozen=True, repr=False)
class TaskStream:
    """A long or endless row of tasks, made a chunk at a time; iterate, slice, or collect it."""

    pool: ClassPool
    n_tasks: int | None
    chunk_size: int
    make: Callable[[int, int], TaskSet]
    """Makes the tasks from a first index up to, not including, a last one; workers are handed it,
    so it must be a function of a module, with what it needs."""
    class_ids: Int[np.ndarray, "n"]
    """The classes that may occur."""
    max_way: int
    """The number of classes that batches are padded to."""
    max_shot: int
    """The number of support samples per class that batches are padded to."""

    def __repr__(self) -> str:
        number = "endless" if self.n_tasks is None else f"{self.n_tasks:,} tasks"
        return f"TaskStream({number} over {self.pool.name!r})"

    def __len__(self) -> int:
        if self.n_tasks is None:
            raise TypeError("an endless stream of tasks has no length; slice it, or give n_tasks")
        return self.n_tasks

    def __iter__(self) -> Iterator[TaskSet]:
        start = 0
        while self.n_tasks is None or start < self.n_tasks:
            yield self[start : start + self.chunk_size]
            start += self.chunk_size

    def __getitem__(self, which: slice) -> TaskSet:
        """The tasks of a range of indices, as a TaskSet, without making the ones before it."""
        check_kind(which, slice, "tasks[…] of a stream", "Give a range, such as [100:200].")
        start, stop = which.start or 0, which.stop if which.stop is not None else self.n_tasks
        if which.step not in (None, 1) or start < 0 or stop is None or stop < start:
            raise DataError(
                "slice a stream of tasks with plain ascending bounds, such as [100:200]."
            )
        return self.make(start, stop if self.n_tasks is None else min(stop, self.n_tasks))

    def collect(self) -> TaskSet:
        """All tasks at once; only their indices take memory."""
        return self[: len(self)]


@dataclass(frozen=True)
class _Recipe:
    """What was asked for, checked: which classes may meet in a task, and how many."""

    pool: ClassPool
    seed: int
    way: tuple[int, int]
    shot: tuple[int, int]
    n_query: int
    blocks: tuple[Int[np.ndarray, "_"], ...]
    """Classes that may meet in a task: one block of all, or one for each group."""
    weights: Float[np.ndarray, "blocks"] | None = None
    """How likely each block is, relative to the others; None if all are alike."""

    @staticmethod
    def check(
        pool: ClassPool,
        n_way: int | tuple[int, int],
        n_shot: int | str | tuple[int, int],
        n_query: int,
        split: str | None,
        within_group: bool,
        seed: Seed,
        group_weights: GroupWeights = "groups",
    ) -> "_Recipe":
        check_flag(within_group, "within_group")
        low, high = check_range(n_way, "n_way", 2)
        classes = pool.classes_in(split)
        blocks = _groups(pool, classes) if within_group else (classes,)
        largest = max(len(b) for b in blocks)
        if largest < high:
            where = (
                "the largest group" if within_group else (split and f"split {split!r}") or "pool"
            )
            raise DataError(
                f"n_way={n_way!r} needs {high} classes; {where} of {pool.name!r} has {largest}. "
                "Lower n_way."
            )
        blocks = tuple(b for b in blocks if len(b) >= low)
        weights = _weights(pool, blocks, group_weights, within_group)
        if weights is not None:
            blocks = tuple(b for b, w in zip(blocks, weights, strict=True) if w)
            if max((len(b) for b in blocks), default=0) < high:
                raise DataError(
                    f"no group with a weight above 0 has the {high} classes that n_way={n_way!r} "
                    "needs. Lower n_way, or weigh other groups."
                )
            weights = weights[weights > 0]
        shot = check_shots(pool, n_shot, n_query, np.concatenate(blocks))
        return _Recipe(pool, check_seed(seed), (low, high), shot, n_query, blocks, weights)

    def possible(self) -> int:
        """How many different sets of classes there are."""
        ways = range(self.way[0], self.way[1] + 1)
        return sum(math.comb(len(b), w) for b in self.blocks for w in ways)

    def draw(self, index: Int[np.ndarray, "tasks"]) -> Int[np.ndarray, "tasks way"]:
        """The classes of the tasks with these indices; each depends on its own index alone."""
        keys = task_keys(self.seed, index)
        low, high = self.way
        ways = low + below(keys, _WAY, np.full(len(index), high - low + 1))
        order = np.concatenate(self.blocks)
        sizes = np.array([len(b) for b in self.blocks])
        starts = np.cumsum(sizes) - sizes
        block = np.zeros(len(index), dtype=np.int64)
        for way in np.unique(ways) if len(sizes) > 1 else ():
            fits, rows = np.flatnonzero(sizes >= way), ways == way
            block[rows] = fits[self._draw_block(keys[rows], fits)]
        picks = distinct(subkeys(keys, _CLASSES), sizes[block], high)
        beyond = np.arange(high) >= ways[:, None]
        rows = np.where(beyond, 0, starts[block][:, None] + picks)
        return np.where(beyond, -1, order[rows]).astype(class_dtype(self.pool))

    def _draw_block(
        self, keys: UInt64[np.ndarray, "tasks"], fits: Int[np.ndarray, "fitting"]
    ) -> Int[np.ndarray, "tasks"]:
        """Which of the blocks that fit each task is drawn from."""
        if self.weights is None:
            return below(keys, _GROUP, np.full(len(keys), len(fits)))
        share = np.cumsum(self.weights[fits]) / self.weights[fits].sum()
        chance = below(keys, _GROUP, np.full(len(keys), 1 << 32)) / float(1 << 32)
        return np.minimum(np.searchsorted(share, chance, side="right"), len(fits) - 1)

    def stream(
        self, n_tasks: int | str | None, chunk_size: int, make: Callable[[int, int], TaskSet]
    ) -> TaskStream:
        """A stream of such tasks."""
        chunk_size = check_whole(chunk_size, "chunk_size", 1)
        n_tasks = None if n_tasks is None else check_whole(n_tasks, "n_tasks", 1)
        classes = np.sort(np.concatenate(self.blocks))
        most = int(self.pool.counts[classes].max()) - self.n_query
        shot = self.shot[1] or most
        return TaskStream(self.pool, n_tasks, chunk_size, make, classes, self.way[1], shot)

    def tasks(
        self, classes: Int[np.ndarray, "tasks way"], index: Int[np.ndarray, "tasks"]
    ) -> TaskSet:
        """Tasks with these classes, whose samples follow from the seed and these indices."""
        keys = task_keys(self.seed, index)
        low, high = self.shot
        shots = low + below(keys, _SHOT, np.full(len(index), high - low + 1))
        return TaskSet(self.pool, classes, keys, shots.astype(np.int32), self.n_query)


class _Options(TypedDict, total=False):
    n_way: int | tuple[int, int]
    n_shot: int | str | tuple[int, int]
    n_query: int
    split: str | None
    within_group: bool
    group_weights: GroupWeights
    unique: bool
    seed: Seed
    chunk_size: int


@overload
def sample_tasks(
    pool: ClassPool,
    n_tasks: int | str,
    *,
    stream: Literal[False] = ...,
    **options: Unpack[_Options],
) -> TaskSet: ...


@overload
def sample_tasks(
    pool: ClassPool,
    n_tasks: int | str | None = ...,
    *,
    stream: Literal[True],
    **options: Unpack[_Options],
) -> TaskStream: ...


@public
def sample_tasks(
    pool: ClassPool,
    n_tasks: int | str | None = None,
    *,
    n_way: int | tuple[int, int] = 5,
    n_shot: int | str | tuple[int, int] = 5,
    n_query: int = 0,
    split: str | None = None,
    within_group: bool = False,
    group_weights: GroupWeights = "groups",
    unique: bool = False,
    seed: Seed = 0,
    stream: bool = False,
    chunk_size: int = 4096,
) -> TaskSet | TaskStream:
    """Draw tasks at random: a number of ways, then classes, then samples, uniformly.

    ``n_tasks="all"`` lists every combination of ``n_way`` classes once, in lexicographic order.
    ``stream=True`` returns a :class:`TaskStream` that makes them a chunk at a time; without
    ``n_tasks`` it has no end. ``n_way`` and ``n_shot`` are a number or a range ``(low, high)``;
    ``n_shot="all"`` takes every sample that is not a query. ``within_group`` draws a group first,
    then all classes from it. ``group_weights`` says how likely a group is: ``"groups"`` each as any
    other, ``"classes"`` by its number of classes, ``"sources"`` so that each source of a joined
    pool is as likely as any other and each of its groups too, or a dict of group to weight (others
    get none). A group with fewer classes than a task has ways is left out. ``unique`` admits each
    set of classes once. The same seed gives the same tasks; asking for more continues the same row.

    >>> pool = ClassPool.from_arrays(np.zeros((60, 2)), np.repeat(np.arange(20), 3))
    >>> sample_tasks(pool, 100, n_way=(2, 4), n_shot=1, n_query=2, seed=1)
    TaskSet(100 tasks over 'arrays': 2–4-way, 1-shot, 2 queries)
    >>> sample_tasks(pool, "all", n_shot=1, stream=True)
    TaskStream(15,504 tasks over 'arrays')
    """
    recipe = _Recipe.check(pool, n_way, n_shot, n_query, split, within_group, seed, group_weights)
    all_of_them = isinstance(n_tasks, str) and n_tasks == "all"
    every = _every(recipe, n_way, chunk_size) if all_of_them else None
    if check_flag(stream, "stream"):
        if unique:
            raise DataError("unique=True has no effect with stream=True; leave one of them out.")
        return every or recipe.stream(n_tasks, chunk_size, partial(_made, recipe, None))
    n_tasks = check_whole(len(every) if every else n_tasks, "n_tasks", 1)
    check_memory(
        n_tasks * (_BYTES_PER_TASK + 2 * np.dtype(class_dtype(pool)).itemsize * recipe.way[1]),
        f"n_tasks={n_tasks:,} tasks",
        "Lower n_tasks, or draw them a chunk at a time with stream=True.",
    )
    if every is not None:
        return every.collect()
    if check_flag(unique, "unique"):
        return _sample_unique(recipe, n_tasks)
    index = np.arange(n_tasks)
    classes = np.concatenate(
        [recipe.draw(index[i : i + _CHUNK]) for i in range(0, n_tasks, _CHUNK)]
    )
    return recipe.tasks(classes, index)


def _made(recipe: _Recipe, listed_way: int | None, start: int, stop: int) -> TaskSet:
    """The tasks of a range of indices: drawn, or from the list of all of ``listed_way`` classes."""
    index = np.arange(start, max(start, stop))
    classes = recipe.draw(index) if listed_way is None else _unrank(recipe, listed_way, index)
    return recipe.tasks(classes, index)


def _every(recipe: _Recipe, n_way: int | tuple[int, int], chunk_size: int) -> TaskStream:
    """Every combination of ``n_way`` classes, once, in lexicographic order."""
    if isinstance(n_way, tuple):
        raise DataError(
            f"n_tasks='all' lists tasks of one size; n_way={n_way} is a range. Give one number."
        )
    total = recipe.possible()
    if total > _MOST_TO_ENUMERATE:
        raise DataError(
            f"there are {total:.1e} tasks of {n_way} classes, too many to number; give a number of "
            "tasks instead of n_tasks='all'."
        )
    return recipe.stream(total, chunk_size, partial(_made, recipe, n_way))


def _groups(pool: ClassPool, classes: Int[np.ndarray, "some"]) -> tuple[Int[np.ndarray, "_"], ...]:
    if pool.groups is None:
        raise DataError(f"within_group=True: pool {pool.name!r} has no groups.")
    of = np.asarray(pool.groups)[classes]
    return tuple(classes[of == name] for name in np.unique(of))


def _weights(
    pool: ClassPool,
    blocks: Sequence[Int[np.ndarray, "_"]],
    group_weights: GroupWeights,
    within_group: bool,
) -> Float[np.ndarray, "blocks"] | None:
    """The weights of groups, as the caller names them; None where all are alike."""
    if not isinstance(group_weights, Mapping):
        check_choice(group_weights, "group_weights", _GROUP_WEIGHTS)
    if group_weights == "groups":
        return None
    if not within_group:
        raise DataError("group_weights is for within_group=True, which draws a group first.")
    if group_weights == "classes":
        return np.array([len(block) for block in blocks], dtype=np.float64)
    if isinstance(group_weights, Mapping):
        groups = pool.groups or ()
        if unknown := [group for group in group_weights if group not in groups]:
            raise DataError(
                f"group_weights: pool {pool.name!r} has no group {unknown[0]!r}; it has groups "
                f"such as {few_names(list(dict.fromkeys(groups)))}."
            )
        for group, weight in group_weights.items():
            check_number(weight, f"group_weights[{group!r}]", 0)
        return np.array([float(group_weights.get(groups[block[0]], 0)) for block in blocks])
    if pool.sources is None:
        raise DataError(
            f"group_weights='sources': pool {pool.name!r} is from one source. Use 'groups' or "
            "'classes', or join pools with join_pools."
        )
    sources = [pool.sources[block[0]] for block in blocks]
    return np.array([1 / sources.count(source) for source in sources])


def _unrank(
    recipe: _Recipe, way: int, rank: Int[np.ndarray, "tasks"]
) -> Int[np.ndarray, "tasks way"]:
    """The rank-th combination of each block in lexicographic order, the blocks one after another.

    Counting from the end, the combination is the combinatorial number system: the largest c with
    C(c, way) <= rank, and so on with way - 1 for the rest.
    """
    sizes = np.array([math.comb(len(b), way) for b in recipe.blocks], dtype=np.int64)
    ends = np.cumsum(sizes)
    block = np.searchsorted(ends, rank, side="right")
    classes = np.empty((len(rank), way), dtype=class_dtype(recipe.pool))
    for b in np.unique(block):
        rows, members = np.flatnonzero(block == b), recipe.blocks[b]
        left = ends[b] - 1 - rank[rows]
        for place in range(way):
            k = way - place
            table = np.array(
                [min(math.comb(c, k), _MOST_TO_ENUMERATE) for c in range(len(members) + 1)],
                dtype=np.int64,
            )
            c = np.searchsorted(table, left, side="right") - 1
            classes[rows, place] = members[len(members) - 1 - c]
            left = left - table[c]
    return classes


def _sample_unique(recipe: _Recipe, n_tasks: int) -> TaskSet:
    """The row of random tasks without those whose classes came before, cut at ``n_tasks``.

    Once most draws repeat earlier ones (nearly everything was asked for, or small groups are used
    up) the rest is taken from the list of all tasks, shuffled.
    """
    possible = recipe.possible()
    if n_tasks > possible:
        raise DataError(
            f"n_tasks={n_tasks:,} unique tasks were asked for; only {possible:,} different sets of "
            "classes exist. Lower n_tasks, or allow repeats with unique=False."
        )
    kept: list[np.ndarray] = []
    seen = np.empty(0, dtype=_code(recipe, np.empty((0, recipe.way[1]), dtype=np.int16)).dtype)
    at = n_kept = 0
    step = _FIRST_STEP  # grows on a fixed schedule, so that the tasks do not depend on n_tasks
    with progress_bar("drawing unique tasks", n_tasks) as advance:
        while n_kept < n_tasks:
            classes = recipe.draw(np.arange(at, at + step))
            at, step = at + step, min(2 * step, _LAST_STEP)
            codes = _code(recipe, classes)
            first = np.unique(np.concatenate([seen, codes]), return_index=True)[1]
            fresh = np.sort(first[first >= len(seen)]) - len(seen)
            kept.append(classes[fresh])
            seen = np.concatenate([seen, codes[fresh]])
            n_kept += len(fresh)
            advance(len(fresh))
            if len(fresh) >= 0.3 * len(codes):
                continue
            recipe = _without_used_up(recipe, kept)
            if n_kept < n_tasks and possible <= _MOST_TO_LIST:
                everything = _everything(recipe)
                rest = everything[~np.isin(_code(recipe, everything), seen)]
                kept.append(np.random.default_rng(recipe.seed).permutation(rest))
                break
    return recipe.tasks(np.concatenate(kept)[:n_tasks], np.arange(n_tasks))


def _without_used_up(recipe: _Recipe, kept: Sequence[np.ndarray]) -> _Recipe:
    """The recipe without groups of which all sets of classes are among those kept."""
    block_of = np.full(len(recipe.pool), -1)
    for b, block in enumerate(recipe.blocks):
        block_of[block] = b
    drawn = block_of[np.concatenate([tasks[:, 0] for tasks in kept])]
    left = np.bincount(drawn[drawn >= 0], minlength=len(recipe.blocks)) < [
        replace(recipe, blocks=(block,)).possible() for block in recipe.blocks
    ]
    blocks = tuple(block for block, stays in zip(recipe.blocks, left, strict=True) if stays)
    weights = None if recipe.weights is None else recipe.weights[left]
    return replace(recipe, blocks=blocks, weights=weights)


def _everything(recipe: _Recipe) -> Int[np.ndarray, "tasks way"]:
    parts = []
    for way in range(recipe.way[0], recipe.way[1] + 1):
        total = sum(math.comb(len(b), way) for b in recipe.blocks)
        part = _unrank(recipe, way, np.arange(total))
        parts.append(np.pad(part, ((0, 0), (0, recipe.way[1] - way)), constant_values=-1))
    return np.concatenate(parts)


def _code(recipe: _Recipe, classes: Int[np.ndarray, "tasks way"]) -> Shaped[np.ndarray, "tasks"]:
    """One value per set of classes, equal for equal sets only: a packed integer, or raw bytes."""
    ordered = np.sort(classes, axis=1)
    bits = len(recipe.pool).bit_length()
    if bits * ordered.shape[1] <= 64:
        code = np.zeros(len(ordered), dtype=np.uint64)
        for column in ordered.T:
            code = (code << np.uint64(bits)) | (column.astype(np.int64) + 1).astype(np.uint64)
        return code
    wide = np.ascontiguousarray(ordered, dtype=np.int32)
    return wide.view(f"V{wide.shape[1] * 4}")[:, 0]


def draw_tasks(
    pool: ClassPool, most: int, *, n_way: int, split: str | None = None, **options: Any
) -> TaskSet:
    """All combinations of classes, or ``most`` of them by chance where there are more."""
    n_tasks = "all" if math.comb(len(pool.classes_in(split)), n_way) <= most else most
    return sample_tasks(pool, n_tasks, n_way=n_way, split=split, unique=True, **options)
