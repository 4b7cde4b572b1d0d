import pytest
import torch
from random_models import END, SETTINGS, create, process_state, write_model

from balanced_aggregation.rollout.vllm_engine import VllmEngine


@pytest.fixture(scope="session")
def engine_of(tmp_path_factory):
    """Engines, each loaded once: by architecture, tied, and what is special."""
    known = {}

    def make(architecture="qwen3", tied=False, *, max_sequences=64, ends=(END,), **changes):
        key = (architecture, tied, max_sequences, ends, *changes.items())
        if key not in known:
            folder = write_model(tmp_path_factory.mktemp("model"), create(architecture, tied, seed=0))
            before = process_state()
            settings = SETTINGS.model_copy(update=changes)
            known[key] = VllmEngine(folder, settings, end_token_ids=ends, max_sequences=max_sequences, max_length=200)
            assert process_state() == before
            torch.set_num_threads(2)
            assert torch.get_num_threads() == 2, "torch.set_num_threads does not work any more"
            torch.set_num_threads(1)
        return known[key]

    return make
