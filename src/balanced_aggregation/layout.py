"""Where everything of a study is. The workflow and the commands both ask here."""

from pathlib import Path

from balanced_aggregation.config import TRAIN, Study


class Paths:
    """Paths in the folder of one study, relative to the working directory."""

    def __init__(self, root: Path):
        """Args: the folder of the study, or a pattern for the folders of several."""
        self.root = root
        self.study_file = self.root / "study.yaml"
        self.source_model = self.root / "model" / "source"
        self.warm_model = self.root / "model" / "warm"
        self.problems = self.root / "data"
        self.train_problems = self.problems / f"{TRAIN}.parquet"
        self.contamination = self.problems / "contamination.parquet"
        self.contamination_counts = self.problems / "contamination.json"
        self.contamination_table = self.problems / "contamination.md"
        self.tracking = self.root / "tracking.json"
        self.tracked = self.root / "tracked.json"
        self.results = self.root / "results.parquet"
        self.problem_results = self.root / "problems.parquet"
        self.training_metrics = self.root / "training.parquet"
        self.disagreements = self.root / "disagreements.parquet"
        self.tables = self.root / "tables"
        self.figures = self.root / "figures"

    def statements(self, name: str) -> Path:
        """A dataset as it is, before the study's model is asked: a benchmark's, or the training set's under `TRAIN`."""
        return self.problems / "statements" / f"{name}.parquet"

    def statements_manifest(self, name: str) -> Path:
        """Where the statements come from, counts and digest."""
        return self.statements(name).with_suffix(".json")

    def benchmark(self, name: str) -> Path:
        """Problems of a benchmark."""
        return self.problems / "benchmarks" / f"{name}.parquet"

    def manifest(self, name: str) -> Path:
        """Counts and digest of a benchmark's problems, or of the training set's under `TRAIN`."""
        return (self.train_problems if name == TRAIN else self.benchmark(name)).with_suffix(".json")

    def run(self, rule: str, seed: int | str) -> Path:
        """Folder of one training."""
        return self.root / "runs" / rule / f"seed{seed}"

    def attempt(self, rule: str, seed: int | str) -> Path:
        """What the latest attempt at a training came to, or that it is under way (`attempts.Attempt`)."""
        return self.run(rule, seed) / "attempt.json"

    def responses(self, checkpoint: str, benchmark: str) -> Path:
        """Responses of one checkpoint (`checkpoints.Checkpoint.name`) to one benchmark."""
        return self.root / "responses" / checkpoint / f"{benchmark}.parquet"

    def evaluation(self, checkpoint: str, benchmark: str) -> Path:
        """The same responses with their verdicts."""
        return self.root / "evaluations" / checkpoint / f"{benchmark}.parquet"

    def lighteval(self, checkpoint: str, benchmark: str) -> Path:
        """The same responses as lighteval scores them."""
        return self.root / "lighteval" / checkpoint / f"{benchmark}.parquet"

    def log(self, stage: str) -> Path:
        """Log of a stage; wildcards may be in its name."""
        return self.root / "logs" / f"{stage}.log"

    def resources(self, stage: str) -> Path:
        """Time and memory that a stage took, as Snakemake measures it."""
        return self.root / "benchmarks" / f"{stage}.jsonl"


class Layout(Paths):
    """Paths of one study, and what depends on what is in it."""

    def __init__(self, study: Study):
        """Args: the study."""
        super().__init__(study.folder)
        self.study = study

    @property
    def initial_model(self) -> Path:
        """The model that every rule and seed starts from."""
        return self.warm_model if self.study.warm_start else self.source_model
