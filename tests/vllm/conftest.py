import json
import os
import random

import numpy as np
import pytest
import torch
from random_models import END, create

from balanced_aggregation.config import VllmRollout
from balanced_aggregation.rollout.vllm_engine import VllmEngine

SETTINGS = VllmRollout(engine="vllm", dtype="float32", cpu_cache_gib=0.1)


def process_state():
    """What belongs to the process and not to vLLM."""
    return {
        "python": random.getstate(),
        "numpy": repr(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "variables": {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTEST_"))},
    }


def write_model(folder, model):
    """With defaults of its own for sampling and another end token, which must not matter."""
    model.save_pretrained(folder)
    sampling = {"do_sample": True, "temperature": 0.1, "top_k": 2, "top_p": 0.5, "repetition_penalty": 3.0}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 17], **sampling}))
    return folder


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
