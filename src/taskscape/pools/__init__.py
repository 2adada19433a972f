"""Where samples come from: images or feature vectors, grouped by class."""

from taskscape.pools.cache import data_dir
from taskscape.pools.known import POOLS
from taskscape.pools.load import load_pool
from taskscape.pools.pool import SPLITS, ClassPool, parse_split

__all__ = ["POOLS", "SPLITS", "ClassPool", "data_dir", "load_pool", "parse_split"]
