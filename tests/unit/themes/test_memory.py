"""Pools, and tables of likelihoods, that are larger than the memory a process may have."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from taskscape.pools import ClassPool
from taskscape.pools.cache import write_pool

CODE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from taskscape import TaskThemes, load_pool, sample_tasks
from taskscape.themes import PrepareConfig
from taskscape.pools import cache
from taskscape.themes import embed, prepare, start

def data_bytes():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if "VmData" in l)
    return 1024 * int(line.split()[1])

def fit_and_embed(pool):
    tasks = sample_tasks(pool, 100, n_way=2, n_shot=4)
    sizes = {"image_themes": 4, "task_themes": 2, "max_passes": 1, "batch_size": 50}
    steps = PrepareConfig(pca=None)
    paper = TaskThemes.paper(**sizes, prepare=steps, random_state=0)
    models = [paper, TaskThemes(16, prepare=steps)]
    return all(np.isfinite(model.fit(tasks).transform(tasks)).all() for model in models)

small, large, cap = load_pool(sys.argv[1]), sys.argv[2], int(sys.argv[3])
start._MOST_SAMPLES = 2_000
cache._MAP_ABOVE_BYTES = prepare._KEEP_BELOW_BYTES = embed._KEEP_BELOW_BYTES = 1 << 20
fit_and_embed(small)  # what is compiled stays in memory
limit = data_bytes() + cap
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(json.dumps(bool(fit_and_embed(load_pool(large)))))
"""


def made_up_pool(folder: Path, samples: int, dims: int) -> int:
    """A stored pool of ten classes; its size in bytes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, samples, dims), dtype=np.float32)
    X[..., :4] += 3 * rng.standard_normal((10, 1, 4), dtype=np.float32)
    pool = ClassPool.from_arrays(X.reshape(-1, dims), np.repeat(np.arange(10), samples))
    write_pool(pool, folder)
    return X.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all memory on Linux only")
def test_a_pool_larger_than_memory_is_fitted_and_embedded(tmp_path):
    dims, cap = 32, 80 << 20
    made_up_pool(tmp_path / "small", 500, dims)  # more than a start looks at
    size = made_up_pool(tmp_path / "large", 130_000, dims)
    assert size > 1.9 * cap  # and the table of likelihoods is another eighth
    asked = [sys.executable, "-c", CODE, tmp_path / "small", tmp_path / "large", str(cap)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) is True
