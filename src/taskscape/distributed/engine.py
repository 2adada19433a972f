"""Independent pieces of work, done in this process or by the workers of a Ray cluster.

The mathematics is a map over tasks, so all that needs more than one machine is a map over pieces of
work: :func:`map_work`. Every piece is a function of its item alone, so that who does it, in which
order and how often changes nothing. :func:`use_engine` says who does it. Signals that would end
work that several processes share wait until all can stop (:func:`interrupts_wait`).
"""

import importlib
import importlib.util
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from taskscape.errors import TaskscapeError
from taskscape.progress import progress_bar, track

Item = TypeVar("Item")
Result = TypeVar("Result")

ENGINES = {
    "local": "one after another in this process",
    "ray": "by the workers of the Ray cluster that RAY_ADDRESS names, or otherwise of a local one",
    "ray://host:port": "by those of the Ray cluster at that address",
}
_LOCAL = "local"
_ENGINE: ContextVar[str] = ContextVar("engine", default=_LOCAL)
_RETRIES = 3
"""How often an item is done again after the worker that did it died."""
_SECONDS_BETWEEN_LOOKS = 1.0
_WAITING: list[list[int]] = []
"""Signals noted in blocks where they wait."""
_OWN_JOBS: set[str] = set()
"""What Ray calls the connections that this module made, not its caller."""


class EngineError(TaskscapeError):
    """The workers failed, not the work; what is finished is kept."""


@contextmanager
def use_engine(engine: str) -> Iterator[None]:
    """Let all pieces of work inside the block be done by one of ``ENGINES``.

    >>> with use_engine("local"):
    ...     list(map_work(abs, [-1, 2]))
    [1, 2]
    """
    if engine not in (_LOCAL, "ray") and not engine.startswith("ray://"):
        raise EngineError(f"engine {engine!r} is not known; use {', '.join(ENGINES)}.")
    if engine != _LOCAL and importlib.util.find_spec("ray") is None:
        raise EngineError(f"engine {engine!r} needs Ray: pip install 'taskscape[ray]'.")
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


def on_workers() -> bool:
    """Whether pieces of work are done by several workers, side by side."""
    return _ENGINE.get() != _LOCAL


def map_work(
    function: Callable[..., Result],
    items: Sequence[Item],
    *,
    shared: tuple[Any, ...] = (),
    description: str = "working",
) -> Iterator[Result]:
    """``function(item, *shared)`` for every item, in the order of the items.

    It is done by the engine in use. Ray's workers are handed ``shared`` once. A worker has a core,
    or a GPU where the cluster has some. What a dead worker had begun is done again by another. An
    error in the function ends the work, and is raised; workers finish the few pieces that they have
    been given (to cancel one that is ending can make Ray abort this process).

    >>> list(map_work(lambda item, factor: factor * item, [1, 2, 3], shared=(10,)))
    [10, 20, 30]
    """
    engine = _ENGINE.get()
    if engine != _LOCAL:
        yield from _map_on_ray(function, items, shared, engine, description)
        return
    for item in track(items, description):
        yield function(item, *shared)


# -- Ray ----------------------------------------------------------------------------------------


def _map_on_ray(
    function: Callable[..., Result],
    items: Sequence[Item],
    shared: tuple[Any, ...],
    engine: str,
    description: str,
) -> Iterator[Result]:
    ray: Any = importlib.import_module("ray")
    _connect(engine)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    workers = gpus or int(ray.cluster_resources().get("CPU", 1))
    remote = ray.remote(num_cpus=1, num_gpus=int(gpus > 0), max_retries=_RETRIES)(_one_elsewhere)
    handed_over, folder = ray.put(shared), str(Path.cwd())
    running: dict[Any, int] = {}
    finished: dict[int, Result] = {}
    waiting, next_one = enumerate(items), 0
    try:
        with progress_bar(description, len(items)) as advance:
            while next_one < len(items):
                # not all at once: results wait until it is their turn
                for number, item in islice(waiting, max(0, 2 * workers + 1 - len(running))):
                    running[remote.remote(item, function, handed_over, folder)] = number
                ready, _ = ray.wait(list(running), timeout=_SECONDS_BETWEEN_LOOKS)
                for reference in ready:
                    finished[running.pop(reference)] = ray.get(reference)
                    advance()
                while next_one in finished:
                    yield finished.pop(next_one)
                    next_one += 1
    except KeyboardInterrupt:  # the process may end at once, which would leave some of it running
        _leave()
        raise
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, TaskscapeError | OSError) else error) from None
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise EngineError(
            f"{description}: the Ray cluster failed, or a worker died {_RETRIES + 1} times on one "
            f"piece of work ({type(error).__name__}: {error}). What is finished is kept: the same "
            "command resumes from there."
        ) from error


def _one_elsewhere(
    item: Item, function: Callable[..., Result], shared: tuple[Any, ...], folder: str
) -> Result:
    """One piece of work on a worker, in the folder of the process that asks.

    Ray's workers are in the folder where their cluster was started, and would look for relative
    paths there.
    """
    with suppress(OSError):  # not every machine has that folder, nor every piece of work needs it
        os.chdir(folder)
    return function(item, *shared)


def _connect(engine: str) -> None:
    """Join the cluster that was asked for, or start one on this machine."""
    ray: Any = importlib.import_module("ray")
    if not ray.is_initialized():
        address = engine if engine.startswith("ray://") else None
        try:
            with still_heard(), warnings.catch_warnings():
                # JAX warns of every new process; those of Ray do nothing else before they are one
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
            _OWN_JOBS.add(ray.get_runtime_context().get_job_id())
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = address or os.environ.get("RAY_ADDRESS", "this machine")
            raise EngineError(f"no Ray cluster at {where} can be reached: {error}") from error


def _leave() -> None:
    """End a connection that this module made, and the cluster if it was started for it."""
    ray: Any = importlib.import_module("ray")
    if ray.is_initialized() and ray.get_runtime_context().get_job_id() in _OWN_JOBS:
        ray.shutdown()


# -- interrupts ---------------------------------------------------------------------------------


@contextmanager
def interrupts_wait(wait: bool) -> Iterator[list[int]]:
    """Inside the block, signals are noted in the list instead of raised, if they are to wait."""
    noted: list[int] = []
    if wait:
        _WAITING.append(noted)
    try:
        yield noted
    finally:
        if wait:
            _WAITING.pop()


def wait_with(number: int) -> bool:
    """Note a signal where interrupts wait; False where they do not, and it should be raised."""
    if not _WAITING:
        return False
    _WAITING[-1].append(number)
    return True


@contextmanager
def still_heard() -> Iterator[None]:
    """Handlers of interrupts stay what they were after the block: JAX and Ray take them over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets nobody else set them
        return
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
