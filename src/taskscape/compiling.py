"""Waiting for JAX's compiler: once, not in every run, counted in seconds, and not for nothing.

Compiled programs are kept in the cache folder of taskscape, unless JAX was given a folder of its
own (``JAX_COMPILATION_CACHE_DIR`` or ``jax.config``), or ``TASKSCAPE_KEEP_COMPILED=0`` says not to.
"""

import hashlib
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import jax

from taskscape.io.files import cache_dir

T = TypeVar("T")
_WITH_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
_MOST_BYTES = 1 << 29
_COMPILED = "/jax/core/compile/backend_compile_duration"
_READ_BACK = "/jax/compilation_cache/cache_retrieval_time_sec"
_seconds = {_COMPILED: 0.0, _READ_BACK: 0.0}


def seconds_compiling() -> float:
    """How long this process has waited for the compiler so far.

    Programs that were kept from before are not compiled: reading them back is not counted.
    """
    return max(0.0, _seconds[_COMPILED] - _seconds[_READ_BACK])  # the first includes the second


def _count(event: str, duration_secs: float, **_: Any) -> None:
    if event in _seconds:
        _seconds[event] += duration_secs


def compiled(function: Callable[..., T], static: str | None = None) -> Callable[..., T]:
    """``jax.jit`` for programs of their own that mark what is to be computed once (``kept_once``).

    The compiler for CPUs takes such marks out before it decides what to compute again for every
    use. That pass is left out here: sweeps of the E-step are then twice as fast, and a third less
    is compiled. Elsewhere, and where JAX does not have it so, this is plain ``jax.jit``.
    """
    plain = jax.jit(function, static_argnames=static)
    marked = jax.jit(function, static_argnames=static, compiler_options=_WITH_BARRIERS)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        return (marked if _barriers_can_stay() else plain)(*args, **kwargs)

    return call


@cache
def _barriers_can_stay() -> bool:
    """Whether programs are for a CPU, and this version of JAX compiles them with their barriers."""
    try:
        keep = jax.jit(jax.lax.optimization_barrier, compiler_options=_WITH_BARRIERS)
        return jax.default_backend() == "cpu" and float(keep(1.0)) == 1.0
    except Exception:  # whatever it is, programs are compiled as usual
        return False


@cache
def keep_programs() -> None:
    """Tell JAX to keep what it compiles, if nobody told it where, or not to.

    Small programs too: a study has hundreds of them. Modules that compile call this when they are
    imported. Without a folder that can be written, all works as well, only slower.
    """
    if os.environ.get("TASKSCAPE_KEEP_COMPILED", "1") == "0":
        return
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_dir() / "compiled" / _kind_of_machine()
    above = next(p for p in (folder, *folder.parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        return
    _let_go_of_old_programs(folder.parent)
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    name = "jax_persistent_cache_min_compile_time_secs"
    if jax.config.values[name] == 1.0:  # as it is where nobody says otherwise
        jax.config.update(name, 0.0)  # type: ignore[no-untyped-call]


def _kind_of_machine() -> str:
    """A name for this kind of processor: a home folder may serve many machines."""
    kind = [platform.machine(), platform.processor(), jax.__version__]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kind += [line for line in lines if line.startswith("flags")][:1]
    return hashlib.blake2b("\n".join(kind).encode(), digest_size=10).hexdigest()


def _let_go_of_old_programs(folder: Path) -> None:
    """Where there are too many, delete the older half.

    JAX could do so by itself (``jax_compilation_cache_max_size``), but then reads the times of all
    programs whenever it keeps one: with hundreds of them, that takes longer than to compile.
    """
    with suppress(OSError):  # another process does the same
        files = [(path.stat(), path) for path in folder.rglob("*") if path.is_file()]
        left = sum(about.st_size for about, _ in files)
        if left <= _MOST_BYTES:
            return
        for about, path in sorted(files, key=lambda file: file[0].st_mtime):
            if left <= _MOST_BYTES // 2:
                return
            path.unlink(missing_ok=True)
            left -= about.st_size


jax.monitoring.register_event_duration_secs_listener(_count)
