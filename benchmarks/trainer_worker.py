"""One of the two trainers of against_trl.py, in a process of its own.

    python benchmarks/trainer_worker.py ours|trl CASE.json

It takes a step for each line on stdin, and answers each with a line of JSON. To "step": seconds (of the clock, and of
the processor) of the rollout and of all the rest of the step, which is the update. To "memory": the peak of the bytes
that tensors take during the update beyond those at its beginning, when there are weights and optimiser state but no
gradients: counted at PyTorch's allocator by its profiler.
"""

import json
import os
import sys
import time
from itertools import accumulate
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


class Meter:
    """Waits for the word to start, takes the measures of a step, and reports them."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print is no part of the protocol

    def begin(self):
        """Wait for a line."""
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        self.profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True) if "memory" in line else None
        self.start = _now()

    def rolled_out(self):
        """The rollout is over, the update begins."""
        self.middle = _now()
        if self.profiler:
            self.profiler.start()

    def end(self, **details):
        """The step is over."""
        stop = _now()
        if self.profiler:
            self.profiler.stop()
            events = self.profiler.profiler.kineto_results.events()
            changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
            details["peak"] = max(accumulate(size for _, size in changes))
        for kind in stop:
            times = {"rollout": self.middle[kind] - self.start[kind], "update": stop[kind] - self.middle[kind]}
            details[kind] = times
        print(json.dumps(details), file=self.out, flush=True)


def _now():
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def ours(case, meter):
    from balanced_aggregation.aggregation import RULES
    from balanced_aggregation.config import Training
    from balanced_aggregation.models import load_model
    from balanced_aggregation.rollout import Sampling
    from balanced_aggregation.rollout.transformers_engine import TransformersEngine
    from balanced_aggregation.training.batch import Batch
    from balanced_aggregation.training.policy import Policy
    from balanced_aggregation.training.update import (
        accumulate_gradients,
        apply_update,
        create_optimizer,
        zero_gradients,
    )

    torch.set_num_threads(1)
    lengths = torch.tensor(case["lengths"])

    class Engine(TransformersEngine):
        """Ends responses at the given lengths."""

        def _is_end(self, rows, step, tokens):
            return lengths[rows] == step + 1

    model, tokenizer = load_model(Path(case["model"]))
    group, n = case["group_size"], len(lengths)
    settings = Training(steps=1, micro_batch_tokens=case["micro_batch_tokens"], learning_rate=1e-6)
    engine = Engine(model, [], tokenizer.pad_token_id, n)
    policy = Policy(model)
    optimizer = create_optimizer(policy, settings)
    advantages = torch.tensor([1.0, -1.0] * (n // 2), dtype=torch.float64)
    step = 0
    while True:
        meter.begin()
        step += 1
        prompts = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in case["prompts"]]
        seeds = [[step * n + i * group + k for k in range(group)] for i in range(len(prompts))]
        responses = engine.generate(prompts, seeds, Sampling(1.0, max(case["lengths"])))
        if meter.profiler:  # as they are in TRL
            optimizer.zero_grad(set_to_none=True)
        meter.rolled_out()
        batch = Batch(
            [torch.tensor(p) for p in prompts for _ in range(group)],
            [torch.tensor(r.token_ids) for r in responses],
            torch.tensor([len(r.token_ids) for r in responses]),
            advantages,
            torch.arange(len(prompts)).repeat_interleave(group),
        )
        before = time.process_time()
        weights = RULES["sequence"](batch.lengths, batch.advantages, batch.group_ids)
        aggregation = time.process_time() - before
        zero_gradients(policy)
        accumulate_gradients(policy, batch, weights, settings)
        apply_update(policy, optimizer, settings, 0)
        tokens = sum(map(len, batch.prompts)), sum(map(len, batch.responses))
        meter.end(tokens=tokens, aggregation=aggregation)


def trl(case, meter):
    import tempfile

    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(case["model"])
    lengths, size = torch.tensor(case["lengths"]), case["trl"]["per_device_train_batch_size"]
    counts = {}

    class Ends(LogitsProcessor):
        """Ends responses at the given lengths."""

        def __init__(self):
            self.step = 0

        def __call__(self, input_ids, scores):
            self.step += 1
            end = tokenizer.eos_token_id
            scores[:, end] = -torch.inf
            ended = lengths <= self.step
            scores[ended] = -torch.inf
            scores[ended, end] = 0.0
            return scores

    generate = model.generate
    model.generate = lambda **arguments: generate(**arguments, logits_processor=LogitsProcessorList([Ends()]))

    class Trainer(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *arguments, **keywords):
            completions, log_probs = super()._generate_single_turn(prompt_ids, *arguments, **keywords)
            counts["tokens"] = sum(map(len, prompt_ids)), sum(map(len, completions))
            meter.rolled_out()
            return completions, log_probs

    class Steps(TrainerCallback):
        def on_step_end(self, args, state, control, **keywords):
            meter.end(**counts)
            meter.begin()

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=size,
        gradient_accumulation_steps=len(lengths) // size,
        num_generations=case["group_size"],
        max_completion_length=max(case["lengths"]),
        max_steps=10**6,
        gradient_checkpointing=case["trl"]["gradient_checkpointing"],
        loss_type="grpo",
        shuffle_dataset=False,
        bf16=False,
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    rewards = [1.0, 0.0] * (len(lengths) // 2)
    dataset = Dataset.from_list([{"prompt": prompt} for prompt in case["prompts"]])
    trainer = Trainer(model, lambda **_: rewards, config, dataset, processing_class=tokenizer, callbacks=[Steps()])
    meter.begin()
    trainer.train()


if __name__ == "__main__":
    {"ours": ours, "trl": trl}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()), Meter())
