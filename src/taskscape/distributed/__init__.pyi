from taskscape.distributed.engine import ENGINES as ENGINES
from taskscape.distributed.engine import EngineError as EngineError
from taskscape.distributed.engine import map_work as map_work
from taskscape.distributed.engine import use_engine as use_engine
from taskscape.distributed.mesh import join_processes as join_processes
