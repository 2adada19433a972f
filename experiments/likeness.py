"""Is a test set called unlike the training set when it is, and only then?

    python -m experiments likeness --pool omniglot --out found.jsonl

The classes of a pool with groups are dealt into training, validation and test classes, by groups
and by chance. The classes of mini-ImageNet are grouped by kind of thing.
"""

import time
from dataclasses import asdict, dataclass, replace

from experiments.lab import Lab, option
from taskscape.pools import ClassPool, load_pool
from taskscape.pools.splits import split_classes
from taskscape.similarity import SIMILARITIES, resemblance
from taskscape.tasks import sample_tasks

__all__ = ["LikenessSettings", "run", "with_kinds"]

_KINDS = {
    "birds and reptiles": "01532829 01558993 01704323 01749939 01843383 01855672",
    "invertebrates and fish": "01770081 01910747 02165456 02606052 02174001 01930112 01981276 "
    "02219486",
    "canids": "02089867 02091831 02101006 02105505 02108089 02108551 02108915 02111277 02113712 "
    "02120079 02091244 02114548 02099601 02110063 02110341 02116738",
    "other mammals": "02074367 02457408 02138441 02129165 02443484",
    "vehicles and weapons": "02687172 04389033 04509417 04612504 02950826 02981792 03417042 "
    "03773504 04146614",
    "instruments": "03017168 03838899 03854065 04515003 03272010",
    "containers": "02747177 02795169 02823428 03908618 02971356 03127925 04522168",
    "kitchen and food": "03062245 03400231 04596742 03775546 07584110 07697537 07747607 13133613 "
    "07613480",
    "clothing": "03047690 03476684 03527444 03676483 03770439 03980874 03146219",
    "buildings and scenes": "02966193 03220513 04296562 04435653 04443257 04604644 02871525 "
    "04149813 04418357 06794110",
    "furniture and devices": "03207743 03337140 03347037 03924679 03998194 04067472 04243546 "
    "04258138 03075370 03584254 03544143",
    "sport and outdoors": "03888605 04251144 03535780 09246464 09256479 13054560 04275548",
}
"""The classes of mini-ImageNet by their synsets."""


@dataclass(frozen=True)
class LikenessSettings:
    """What to try."""

    pool: str = option("a known data set or a path")
    measures: tuple[str, ...] = option(
        "similarity measures", ("themes",), choices=tuple(SIMILARITIES)
    )
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)


def with_kinds(pool: ClassPool) -> ClassPool:
    """mini-ImageNet with a kind of thing as the group of each class."""
    kind = {f"n{synset}": name for name, all_of in _KINDS.items() for synset in all_of.split()}
    return replace(pool, groups=tuple(kind[c] for c in pool.class_names), class_digests=None)


def run(settings: LikenessSettings, lab: Lab) -> None:
    """Try what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    pool = with_kinds(pool) if pool.name == "mini_imagenet" else pool
    cells = [
        {"what": "likeness", "pool": pool.name, "data": pool.fingerprint, "measure": measure,
         "by": by, "seed": seed}
        for measure in settings.measures
        for seed in settings.seeds
        for by in ("group", "class")
    ]  # fmt: skip
    for cell in lab.missing(cells):
        seed, grouped = cell["seed"], cell["by"] == "group"
        undealt = replace(pool, groups=pool.groups if grouped else None, splits=None)
        dealt = split_classes(undealt, seed)
        dealt = replace(dealt, groups=pool.groups)
        train, val, test = (
            sample_tasks(dealt, 2000, split=split, n_shot=5, seed=seed)
            for split in ("train", "val", "test")
        )
        began = time.perf_counter()
        answer = resemblance(test, train, cell["measure"], validation=val, seed=seed)
        lab.add(cell, {**asdict(answer), "seconds": round(time.perf_counter() - began, 2)})
        print(cell["by"], seed, answer.summary(), flush=True)
