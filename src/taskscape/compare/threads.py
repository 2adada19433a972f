"""How many threads a search uses."""

import os
from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits

__all__ = ["THREADS", "one_blas_thread"]

THREADS = max(1, min(4, os.cpu_count() or 1))


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread where threads of our own run small matrix products."""
    return threadpool_limits(1, user_api="blas")
