"""Random models of the architectures of our studies, in sizes that vLLM has on a CPU."""

import json
import os
import random

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from balanced_aggregation.config import VllmRollout
from balanced_aggregation.training.batch import token_log_probs

SETTINGS = VllmRollout(engine="vllm", dtype="float32", cpu_cache_gib=0.1)
VOCABULARY, END = 97, 1
ARCHITECTURES = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}


def create(architecture, tied, seed, **changes):
    """Weights are large enough that a stale one shows, biases too (vLLM has them fused)."""
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256,
        "tie_word_embeddings": tied, "eos_token_id": END, "bos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    if architecture == "qwen2":  # it has no head_dim of its own
        sizes["num_attention_heads"] = 2
    config = ARCHITECTURES[architecture](**(sizes | changes))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.15)
    model.generation_config.eos_token_id = END
    return model


def trainer_log_probs(model, prompts, seeds, responses, temperature=1.0):
    """What the trainer computes for the responses, one after the other."""
    asked = [torch.tensor(prompt) for prompt, own in zip(prompts, seeds, strict=True) for _ in own]
    with torch.no_grad():
        return token_log_probs(model, asked, [torch.tensor(r.token_ids) for r in responses], temperature)


def engine_log_probs(responses):
    return torch.tensor([value for r in responses for value in r.log_probs])


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
