"""Run by torchrun on two ranks, with a model and how many share an engine: the engine beside a sharded trainer."""

import sys
from pathlib import Path

import torch
from random_models import END, SETTINGS, create, engine_log_probs, trainer_log_probs
from torch import distributed
from torch.distributed.fsdp import fully_shard

from balanced_aggregation.rollout import Sampling
from balanced_aggregation.rollout.vllm_engine import VllmEngine

PROMPTS = [[5, 6, 7], [8], list(range(2, 90)), [10, 11]]
SAMPLING = Sampling(temperature=1.0, max_new_tokens=20)


def main(folder, shared):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    trained, whole = (create("qwen3", tied=shared == 1, seed=0) for _ in range(2))
    for layer in trained.model.layers:
        fully_shard(layer)
    fully_shard(trained)

    settings = SETTINGS.model_copy(update={"tensor_parallel": shared})
    engine = VllmEngine(folder, settings, end_token_ids=[END], max_sequences=8, max_length=200)

    own = rank if shared == 1 else 0  # ranks that share an engine ask the same
    prompts = PROMPTS[: 4 - own]
    seeds = [[1000 * own + 100 * prompt + k for k in range(3)] for prompt in range(len(prompts))]
    for step in range(3):
        responses = engine.generate(prompts, seeds, SAMPLING)
        everyone = [None, None]
        distributed.all_gather_object(everyone, [response.token_ids for response in responses])
        assert (everyone[0] == everyone[1]) == (shared == 2)
        difference = trainer_log_probs(whole, prompts, seeds, responses) - engine_log_probs(responses)
        assert float(difference.abs().max()) < 1e-4, f"step {step}: {difference.abs().max()}"

        # One step of the sharded model, with vLLM loaded beside it, and the same of the whole one.
        for model in (trained, whole):
            loss = model(torch.tensor([prompts[0]]), labels=torch.tensor([PROMPTS[0]])).loss
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.5 * parameter.grad
                    parameter.grad = None
        engine.update_weights((name, parameter.full_tensor()) for name, parameter in trained.named_parameters())
    distributed.barrier()  # our process group is still ours
    distributed.destroy_process_group()
    # A file each: two processes that print to one pipe can run into each other's lines.
    (Path(folder) / f"passed.{rank}").touch()


main(Path(sys.argv[1]), int(sys.argv[2]))
