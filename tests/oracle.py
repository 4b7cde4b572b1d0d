"""An independent float64 statement of the rules and of the loss: loops over groups, no code of the package."""

import math

import torch


def oracle_weights(rule, lengths, advantages, group_ids, exponent=0.5, max_length=None):
    """The formulas of the table of rules, one response after the other."""
    live = [length > 0 for length in lengths]
    P = len(set(group_ids))
    weights = []
    for i, length in enumerate(lengths):
        if not live[i]:
            weights.append(0.0)
            continue
        group = [j for j, g in enumerate(group_ids) if g == group_ids[i] and live[j]]
        same_sign = [j for j in group if sign(advantages[j]) == sign(advantages[i])]
        G = len(group)
        T = sum(lengths[j] for j in group)
        if rule == "sequence":
            w = 1 / P * 1 / (G * length)
        elif rule == "token":
            w = 1 / P * 1 / T
        elif rule == "balanced":
            w = 1 / P * (len(same_sign) / G) / sum(lengths[j] for j in same_sign)
        elif rule == "token_batch":
            w = 1 / sum(lengths)
        elif rule == "constant":
            w = 1 / (P * G * (max(lengths) if max_length is None else max_length))
        elif rule == "length_power":
            w = 1 / P * length**-exponent / sum(lengths[j] ** (1 - exponent) for j in group)
        else:
            raise AssertionError(f"the oracle does not know the rule {rule!r}")
        weights.append(w)
    return weights


def sign(x):
    return 0 if x == 0 else math.copysign(1, x)


def oracle_loss(model, prompts, responses, weights, lengths, advantages, *, temperature, clip, old, kl, reference):
    """The loss in one piece, each response by itself: no padding, no batch, no split; differentiable."""
    loss = torch.zeros((), dtype=torch.float64)
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        if lengths[i] == 0:
            continue
        log_probs = oracle_log_probs(model, prompt, response, temperature)
        base = log_probs.detach() if old is None else old[i]
        for t in range(len(response)):
            ratio = torch.exp(log_probs[t] - base[t])
            low, high = 1 - clip[0], 1 + clip[1]
            surrogate = min(ratio * advantages[i], torch.clamp(ratio, low, high) * advantages[i])
            token_loss = -surrogate
            if kl:
                difference = reference[i][t] - log_probs[t]
                token_loss = token_loss + kl * (torch.exp(difference) - difference - 1)
            loss = loss + weights[i] * token_loss
    return loss


def oracle_log_probs(model, prompt, response, temperature):
    tokens = torch.cat([prompt, response])
    logits = model(tokens[None]).logits[0] / temperature
    distribution = torch.log_softmax(logits, -1)
    return torch.stack([distribution[len(prompt) - 1 + t, token] for t, token in enumerate(response)])
