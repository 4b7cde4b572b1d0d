import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import HealthCheck, settings

from balanced_aggregation.config import TinyModel
from balanced_aggregation.data.arithmetic import SYMBOLS
from balanced_aggregation.models import character_tokenizer, create_tiny_model

torch.set_num_threads(1)
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def tokenizer():
    return character_tokenizer(SYMBOLS)


@pytest.fixture
def make_model(tokenizer):
    """A model so small that a test can afford float64 and a loop over responses."""

    def make(seed=0, dtype=torch.float32):
        config = TinyModel(hidden_size=16, layers=2, heads=2, intermediate_size=24)
        return create_tiny_model(config, tokenizer, seed).to(dtype).eval()

    return make
