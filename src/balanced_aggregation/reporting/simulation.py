"""Simulated studies whose true accuracies are known, to check statistics against."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri


@dataclass(frozen=True)
class World:
    """Where simulated studies come from. Effects are normal, in units of the latent scale of a response (probit).

    A response is right if its latent noise, of variance 1, lies below the sum of the effects.
    """

    problems: tuple[int, ...] = (100, 100)
    """Of each benchmark."""
    seeds: int = 3
    samples: int = 4
    accuracy: float = 0.4
    """True accuracy of the first rule, averaged over seeds and problems."""
    differences: tuple[float, ...] = (0.0, 0.0)
    """True accuracy of the other rules less the first one's."""
    difficulty: float = 1.0
    """Standard deviation over problems, the same for all rules."""
    problem_by_rule: float = 0.2
    """Standard deviation of what makes a problem easier under one rule than another."""
    seed: float = 0.1
    """Standard deviation over seeds, the same for all rules: what pairing takes out."""
    seed_by_rule: float = 0.1
    """Standard deviation over trainings, on all benchmarks alike."""
    seed_by_benchmark: float = 0.05
    """Standard deviation over trainings, for each benchmark by itself."""
    problem_by_training: float = 0.3
    """Standard deviation over problems and trainings."""
    shared_noise: float = 0.5
    """Share of the noise of a response that all checkpoints have in common: they sample with the same seeds."""

    @property
    def benchmark(self) -> np.ndarray:
        """Number of each problem's benchmark."""
        return np.repeat(np.arange(len(self.problems)), self.problems)

    @property
    def accuracies(self) -> np.ndarray:
        """True accuracy of each rule: over all seeds, and all problems such as these."""
        return self.accuracy + np.array([0.0, *self.differences])

    def draw(self, studies: int, generator: np.random.Generator) -> np.ndarray:
        """Share of right responses by ``(study, rule, seed, problem)``."""
        rules, total = len(self.accuracies), sum(self.problems)

        def normal(deviation: float, *shape: int) -> np.ndarray:
            return deviation * generator.standard_normal(shape, dtype=np.float32)

        effects = (
            normal(self.difficulty, studies, 1, 1, total)
            + normal(self.problem_by_rule, studies, rules, 1, total)
            + normal(self.seed, studies, 1, self.seeds, 1)
            + normal(self.seed_by_rule, studies, rules, self.seeds, 1)
            + normal(self.seed_by_benchmark, studies, rules, self.seeds, len(self.problems))[..., self.benchmark]
            + normal(self.problem_by_training, studies, rules, self.seeds, total)
        )
        deviations = (
            self.difficulty,
            self.problem_by_rule,
            self.seed,
            self.seed_by_rule,
            self.seed_by_benchmark,
            self.problem_by_training,
        )
        # The mean of ndtr(m + e) over a normal e of variance v is ndtr(m / sqrt(1 + v)).
        middle = ndtri(self.accuracies) * np.sqrt(1 + sum(d**2 for d in deviations))
        threshold = (middle[:, None, None] + effects).astype(np.float32)
        right = np.zeros(threshold.shape, dtype=np.float32)
        for _ in range(self.samples):
            shared = normal(np.sqrt(self.shared_noise), studies, 1, 1, total)
            chance = ndtr((threshold - shared) / np.float32(np.sqrt(max(1 - self.shared_noise, 1e-12))))
            right += generator.random(threshold.shape, dtype=np.float32) < chance
        return right / self.samples
