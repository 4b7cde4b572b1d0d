import os
import subprocess
import sys
from pathlib import Path

import pytest
from random_models import create, write_model


@pytest.mark.slow
@pytest.mark.parametrize("shared", [1, 2], ids=["one engine a rank", "one engine for both ranks"])
def test_two_ranks_with_a_sharded_trainer(shared, tmp_path):
    write_model(tmp_path, create("qwen3", tied=shared == 1, seed=0))
    script = Path(__file__).with_name("ranks.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*torchrun, str(script), str(tmp_path), str(shared)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-5000:]
    assert {path.name for path in tmp_path.glob("passed.*")} == {"passed.0", "passed.1"}
