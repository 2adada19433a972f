"""taskscape: how similar are classification tasks?

The public names, in the order of the pipeline: pools, tasks, fit, embed, compare, select, diagram,
forecast.
The meta-learners are in :mod:`taskscape.meta`, all notions of similarity in
:mod:`taskscape.similarity`.
"""

from taskscape.starting import heed_while_importing

heed_while_importing()  # before all that takes long

from taskscape.compare import (
    cdist,
    divergence,
    mean_kl,
    nearest,
    nearest_distance,
    pdist,
    resemblance,
)
from taskscape.diagram import correlation_diagram
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError, TaskscapeError
from taskscape.forecast import Forecaster
from taskscape.pools import (
    ClassPool,
    LookAlikeWarning,
    find_look_alikes,
    join_pools,
    load_pool,
)
from taskscape.select import select
from taskscape.tasks import (
    TaskSet,
    enumerate_tasks,
    load_tasks,
    make_tasks,
    sample_tasks,
    save_tasks,
    stream_tasks,
)
from taskscape.themes.config import FitConfig
from taskscape.themes.estimator import HealthWarning, OutlierTasksWarning, TaskThemes
from taskscape.themes.prepare import PrepareConfig
from taskscape.themes.size_search import search_sizes

__version__ = "0.1.0.dev0"

__all__ = [
    "Catalogue",
    "ClassPool",
    "DataError",
    "Embeddings",
    "FitConfig",
    "Forecaster",
    "HealthWarning",
    "LookAlikeWarning",
    "OutlierTasksWarning",
    "PrepareConfig",
    "TaskFilter",
    "TaskSet",
    "TaskThemes",
    "TaskscapeError",
    "__version__",
    "cdist",
    "correlation_diagram",
    "divergence",
    "enumerate_tasks",
    "find_look_alikes",
    "join_pools",
    "load_pool",
    "load_tasks",
    "make_tasks",
    "mean_kl",
    "nearest",
    "nearest_distance",
    "pdist",
    "resemblance",
    "sample_tasks",
    "save_tasks",
    "search_sizes",
    "select",
    "stream_tasks",
]
