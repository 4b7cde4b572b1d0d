"""The models that a study evaluates, by name."""

import re
from dataclasses import dataclass
from pathlib import Path

from balanced_aggregation.config import BASE, Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import weights_digest

PATTERN = r"(?P<rule>[^/]+)/seed(?P<seed>\d+)/step(?P<step>\d+)"


@dataclass(frozen=True)
class Checkpoint:
    """An evaluated step of a training, or the initial model of all of them."""

    rule: str
    """`BASE` for the initial model."""
    seed: int = 0
    step: int = 0

    @property
    def name(self) -> str:
        """What paths and commands call it."""
        return BASE if self.rule == BASE else f"{self.rule}/seed{self.seed}/step{self.step}"

    @classmethod
    def parse(cls, study: Study, name: str) -> "Checkpoint":
        """The study's checkpoint of that name.

        Raises:
            UserError: the study has none.
        """
        if name == BASE:
            return cls(BASE)
        found = re.fullmatch(PATTERN, name)
        checkpoint = cls(found["rule"], int(found["seed"]), int(found["step"])) if found else cls("")
        if (
            checkpoint.rule not in [rule.name for rule in study.rules]
            or checkpoint.seed not in study.seeds
            or checkpoint.step not in study.evaluated_steps
        ):
            raise UserError(
                f"--checkpoint {name}: study {study.full_name!r} has none of this name; allowed: {BASE}, or "
                f"<rule>/seed<seed>/step<step> with rules {', '.join(r.name for r in study.rules)}, "
                f"seeds {study.seeds}, steps {study.evaluated_steps}"
            )
        return checkpoint

    def model(self, layout: Layout) -> tuple[Path, str]:
        """Its folder, and the digest of the weights in it.

        Raises:
            UserError: the folder does not hold the model that the training describes.
        """
        if self.rule == BASE:
            return layout.initial_model, weights_digest(layout.initial_model)
        run = layout.run(self.rule, self.seed)
        folder = checkpoint_folder(run, self.step)
        found = weights_digest(folder)
        if read_json(run / "run.json")["checkpoints"].get(str(self.step)) != found:
            raise UserError(f"{folder}: is not the model that {run / 'run.json'} describes")
        return folder, found


def checkpoints(study: Study) -> list[Checkpoint]:
    """All that are evaluated, the initial model first."""
    trained = [
        Checkpoint(rule.name, seed, step)
        for rule in study.rules
        for seed in study.seeds
        for step in study.evaluated_steps
    ]
    return [Checkpoint(BASE), *trained]


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where a training keeps the model of an evaluated step."""
    return run / "checkpoints" / f"step_{step:06d}"
