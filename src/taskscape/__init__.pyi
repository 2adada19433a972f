from taskscape.compare import distances as distances
from taskscape.diagram import correlation_diagram as correlation_diagram
from taskscape.embeddings import Embeddings as Embeddings
from taskscape.errors import DataError as DataError
from taskscape.errors import TaskscapeError as TaskscapeError
from taskscape.forecast import Forecaster as Forecaster
from taskscape.pools import ClassPool as ClassPool
from taskscape.pools import join_pools as join_pools
from taskscape.pools import load_pool as load_pool
from taskscape.select import select as select
from taskscape.similarity import nearest as nearest
from taskscape.similarity import resemblance as resemblance
from taskscape.similarity import retrieval as retrieval
from taskscape.study import load_study as load_study
from taskscape.study import run_study as run_study
from taskscape.targets import advise as advise
from taskscape.tasks import TaskSet as TaskSet
from taskscape.tasks import make_tasks as make_tasks
from taskscape.tasks import sample_tasks as sample_tasks
from taskscape.themes.estimator import TaskThemes as TaskThemes

__version__: str
