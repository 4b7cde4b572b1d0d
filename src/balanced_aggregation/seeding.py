"""Every random choice has a seed derived from the study's: no state to carry along, no order to depend on."""

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # matrix products on a GPU in one order
    torch.use_deterministic_algorithms(True)


def seed_generators(seed: int) -> None:
    """Seed the global generators. Nothing of ours draws from them, but a library may."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator_states() -> dict[str, Any]:
    """State of the global generators, as JSON takes it."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, keys.tolist(), position, has_gauss, cached],
        "torch": torch.get_rng_state().tolist(),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Undo everything that has been drawn since `generator_states`."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the global generators afterwards as they were before: for libraries that seed them or draw from them."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
