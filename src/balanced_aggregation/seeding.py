"""Every random choice has a seed derived from the study's: no state to carry along, no order to depend on."""

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed for one purpose, such as ``derive_seed(seed, "rollout", step)``: 63 bits of a SHA-256.

    Different purposes give unrelated streams; the same purpose gives the same one in every run of the study.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_deterministic(threads: int) -> None:
    """Fix what the results depend on besides seeds: the thread count and the choice of algorithms."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
