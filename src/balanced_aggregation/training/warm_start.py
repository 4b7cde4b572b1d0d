"""Supervised learning on generated solutions, so that RL on the arithmetic task starts from a model that can answer."""

import random
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from balanced_aggregation.config import WarmStart
from balanced_aggregation.data.arithmetic import Chain, write_solution
from balanced_aggregation.seeding import derive_seed
from balanced_aggregation.training.batch import micro_batches, sequence_lengths, token_log_probs


def warm_start(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], settings: WarmStart
) -> list[float]:
    """Train ``model`` in place on solutions in a mixture of styles; return the loss of every batch, in nats a token.

    The learning rate rises over a tenth of the batches, then falls along a cosine to a tenth.
    """
    generator = random.Random(derive_seed(settings.seed, "warm start"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=max(settings.batches // 10, 1)),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, settings.batches, eta_min=settings.learning_rate / 10
            ),
        ],
        milestones=[max(settings.batches // 10, 1)],
    )
    losses = []
    for _ in range(settings.batches):
        chosen = generator.choices(prompts, k=settings.batch_size)
        solutions = [write_solution(Chain.parse(prompt), settings.styles, generator) for prompt in chosen]
        asked = [torch.tensor(tokenizer.encode(prompt, add_special_tokens=False)) for prompt in chosen]
        answers = [
            torch.tensor([*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id])
            for text in solutions
        ]
        sizes = sequence_lengths(asked, answers)
        tokens = sum(len(r) for r in answers)
        optimizer.zero_grad()
        loss = 0.0
        for part in micro_batches(sizes, range(len(chosen)), max_tokens=sum(sizes) // 2):
            log_probs = token_log_probs(model, [asked[i] for i in part], [answers[i] for i in part], temperature=1.0)
            part_loss = -log_probs.sum() / tokens
            part_loss.backward()
            loss += part_loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss)
    return losses
