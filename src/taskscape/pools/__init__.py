"""Where samples come from: images or feature vectors, grouped by class."""

from taskscape.pools.cache import data_dir
from taskscape.pools.join import LookAlikes, LookAlikeWarning, find_look_alikes, join_pools
from taskscape.pools.known import POOLS
from taskscape.pools.load import load_pool
from taskscape.pools.pool import SPLITS, ClassPool, parse_split
from taskscape.pools.splits import split_classes

__all__ = [
    "POOLS",
    "SPLITS",
    "ClassPool",
    "LookAlikeWarning",
    "LookAlikes",
    "data_dir",
    "find_look_alikes",
    "join_pools",
    "load_pool",
    "parse_split",
    "split_classes",
]
