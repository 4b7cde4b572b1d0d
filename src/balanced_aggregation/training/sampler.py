"""Which prompts a step sees: the same for every rule, given the seed."""

import torch

from balanced_aggregation.seeding import derive_seed


class PromptSampler:
    """Goes through all problems in a random order, anew for each epoch; a step may span two epochs."""

    def __init__(self, problems: int, per_step: int, seed: int):
        """Args: number of problems, problems a step, and the seed of the order."""
        self.problems, self.per_step, self.seed = problems, per_step, seed
        self.drawn = 0

    def next(self) -> list[int]:
        """Indices of the problems of the next step."""
        indices = []
        for position in range(self.drawn, self.drawn + self.per_step):
            epoch, place = divmod(position, self.problems)
            indices.append(int(self._order(epoch)[place]))
        self.drawn += self.per_step
        return indices

    def _order(self, epoch: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "prompts", epoch))
        return torch.randperm(self.problems, generator=generator)

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps."""
        return {"drawn": self.drawn}

    def restore(self, state: dict[str, int]) -> None:
        """Go on from a checkpoint."""
        self.drawn = state["drawn"]
