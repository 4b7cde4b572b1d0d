"""The study: one YAML file, validated. Every number that a result depends on stands here."""

import string
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from balanced_aggregation.errors import UserError

RESULTS = Path("results")
"""Under it every study has a folder of its own."""

TRAIN = "train"
"""What the training set is called among the datasets."""

RULES_UNCALLED = "rules_uncalled"
"""Key of the validation context: rules are then neither loaded nor called, which takes torch and the user's code."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
VariantName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _unique(values: list[Any], keys: list[Any], what: str) -> list[Any]:
    repeated = [key for i, key in enumerate(keys) if key in keys[:i]]
    if repeated:
        raise ValueError(f"{what} {repeated[0]!r} appears twice")
    return values


class Section(BaseModel):
    """A part of the study: unknown keys are errors, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RuleChoice(Section):
    """An aggregation rule of the comparison; a bare name stands for ``{rule: name}``."""

    rule: str = Field(description="A registered rule, or a function of yours: module:function or file.py:function.")
    name: Name = Field(description="What results call it: the rule's own name, unless given.")
    parameters: dict[str, float | int] = Field(default={}, description="The rule's keyword arguments.")

    @model_validator(mode="before")
    @classmethod
    def _from_bare_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"rule": value}
        if isinstance(value, dict) and isinstance(value.get("rule"), str):
            value = {"name": value["rule"].rpartition(":")[2], **value}
        return value

    @model_validator(mode="after")
    def _meets_the_contract(self, info: ValidationInfo) -> "RuleChoice":
        if (info.context or {}).get(RULES_UNCALLED):
            return self
        from balanced_aggregation.aggregation import RULES
        from balanced_aggregation.rule_loading import check_rule, load_rule

        check_rule(self.rule, self.parameters)
        if self.name in RULES and RULES[self.name] is not load_rule(self.rule):
            raise ValueError(f"name = {self.name!r}: belongs to the registered rule; give {self.rule!r} another name")
        return self


class TinyModel(Section):
    """A randomly initialised Qwen3 with a character tokenizer; it learns the arithmetic task in a warm start."""

    kind: Literal["tiny"] = "tiny"
    hidden_size: PositiveInt = 96
    layers: PositiveInt = 3
    heads: PositiveInt = 3
    intermediate_size: PositiveInt = 256

    @model_validator(mode="after")
    def _heads_divide(self) -> "TinyModel":
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of 2 x heads = {2 * self.heads}")
        return self


class PretrainedModel(Section):
    """A causal language model in the Hugging Face format, from a local folder or the hub, or a GGUF file."""

    kind: Literal["pretrained"]
    path: str = Field(description="A local folder, or the model's id on the hub.")
    revision: str | None = Field(default=None, description="Commit on the hub.")
    gguf_file: str | None = Field(default=None, description="Name of a GGUF file in the folder.")
    python_package: str | None = Field(
        default=None, description="An installed Python package that carries the folder: path is then relative to it."
    )
    chat: bool = Field(default=True, description="Ask through the chat template of the tokenizer.")
    family: Literal["generic", "qwen2.5-math", "qwen3"] = Field(
        default="generic", description="Whose way of asking is followed: the instruction and where it stands."
    )
    thinking: bool | None = Field(
        default=None, description="Qwen3's thinking mode; null leaves it to the chat template, which thinks."
    )
    max_positions: PositiveInt | None = Field(
        default=None, description="Longest sequence that the model is declared to read; null keeps its own."
    )

    @model_validator(mode="after")
    def _can_think(self) -> "PretrainedModel":
        if self.thinking is not None and (self.family != "qwen3" or not self.chat):
            raise ValueError("thinking: only family = 'qwen3' with chat = true has this switch")
        return self


class ArithmeticData(Section):
    """Generated problems of chained integer arithmetic, such as 7+2-4=, disjoint between training and benchmarks."""

    kind: Literal["arithmetic"]
    name: Name = "arithmetic"
    problems: PositiveInt = 4096
    terms: tuple[PositiveInt, PositiveInt] = Field(default=(3, 5), description="Fewest and most numbers in a chain.")

    largest: PositiveInt = Field(default=9, description="No partial sum is larger.")

    @field_validator("terms")
    @classmethod
    def _ordered(cls, terms: tuple[int, int]) -> tuple[int, int]:
        if not 2 <= terms[0] <= terms[1] <= 12:
            raise ValueError("must be [fewest, most] with 2 <= fewest <= most <= 12")
        return terms


class SourceData(Section):
    """A public dataset, from a local file if `path` is given, otherwise from the hub at a pinned revision."""

    kind: Literal[
        "dapo-math-17k",
        "polaris-53k",
        "math-500",
        "aime-2024",
        "aime-2025",
        "olympiadbench",
        "minerva-math",
        "livecodebench",
    ]
    path: str | None = Field(default=None, min_length=1, description="A local copy (Parquet or JSON lines).")
    sha256: str | None = Field(
        default=None, pattern="^[0-9a-f]{64}$", description="Digest that the local copy must have."
    )
    rows: PositiveInt | None = Field(
        default=None, description="Rows of the local copy, if it is known to hold other than the whole dataset."
    )
    limit: PositiveInt | None = Field(default=None, description="Use so many problems, drawn by the data seed.")
    prompt: str | None = Field(
        default=None,
        description="What the model is asked, {problem} being replaced; null asks in the way of the model's family.",
    )

    @property
    def name(self) -> str:
        """What results call it."""
        return self.kind

    @model_validator(mode="after")
    def _describes_a_local_copy(self) -> "SourceData":
        if self.path is None and (self.sha256 or self.rows):
            raise ValueError("sha256 and rows describe a local copy: path is missing")
        return self

    @field_validator("prompt")
    @classmethod
    def _has_problem(cls, prompt: str | None) -> str | None:
        if prompt is None:
            return None
        try:
            fields = [field[1:] for field in string.Formatter().parse(prompt) if field[1] is not None]
        except ValueError as error:
            raise ValueError("must be a format string whose only field is {problem}") from error
        if not fields:
            raise ValueError("must contain {problem}")
        if any(field != ("problem", "", None) for field in fields):
            raise ValueError("must be a format string whose only field is {problem}")
        return prompt


class Decoding(Section):
    """How a benchmark is answered; what is null follows the study's `evaluation`, then the benchmark's own custom."""

    samples: PositiveInt | None = Field(
        default=None, description="k of avg@k; the custom is 32 for AIME and 4 for the others."
    )
    pass_at: list[PositiveInt] | None = Field(default=None, description="Every k of pass@k; pass@1 equals avg@k.")
    temperature: PositiveFloat | None = Field(default=None, description="Of the sampled responses; 1 by custom.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus of the sampled responses; 1 by custom.")
    max_new_tokens: PositiveInt | None = Field(default=None, description="Longer responses are truncated.")

    @field_validator("pass_at")
    @classmethod
    def _distinct_k(cls, pass_at: list[int] | None) -> list[int] | None:
        return None if pass_at is None else _unique(pass_at, pass_at, "pass_at:")


class ArithmeticBenchmark(Decoding, ArithmeticData):
    """Generated problems to evaluate on."""


class SourceBenchmark(Decoding, SourceData):
    """A public dataset to evaluate on."""


Dataset = Annotated[ArithmeticData | SourceData, Field(discriminator="kind")]
Benchmark = Annotated[ArithmeticBenchmark | SourceBenchmark, Field(discriminator="kind")]


class Contamination(Section):
    """What counts as a benchmark's problem among those to train on, besides one equal but for its writing."""

    ngram: PositiveInt = Field(default=8, description="n: consecutive words that are compared.")
    overlap: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the benchmark problem's n-grams that one training problem must hold.",
    )
    remove: Literal["none", "exact", "overlapping"] = Field(
        default="none", description="What is taken out of the training set; exact: equal but for the writing."
    )


class Data(Section):
    """What is trained on and what is evaluated on."""

    seed: Seed = Field(default=0, description="Draws problems; the same for every rule and training seed.")
    train: Dataset
    benchmarks: list[Benchmark] = Field(min_length=1)
    max_prompt_tokens: PositiveInt = Field(
        default=1024, description="Longer prompts are dropped and counted; those of a benchmark are an error."
    )
    contamination: Contamination = Contamination()

    @field_validator("benchmarks")
    @classmethod
    def _distinct(cls, benchmarks: list[Any]) -> list[Any]:
        if any(b.name == TRAIN for b in benchmarks):
            raise ValueError(f"{TRAIN!r} is the name of the training set; give the benchmark another name")
        return _unique(benchmarks, [b.name for b in benchmarks], "name")


class Style(Section):
    """One way of writing solutions in the warm start."""

    share: NonNegativeFloat = Field(description="Relative frequency in the mixture.")
    error_rate: float = Field(ge=0, le=1, description="Probability that a computation in it is wrong.")


class Styles(Section):
    """The mixture of solution styles: it makes length and correctness related before RL begins."""

    terse: Style = Style(share=0.35, error_rate=0.6)
    worked: Style = Style(share=0.35, error_rate=0.06)
    long_winded: Style = Style(share=0.3, error_rate=0.1)

    @model_validator(mode="after")
    def _some_style(self) -> "Styles":
        if not self.terse.share + self.worked.share + self.long_winded.share > 0:
            raise ValueError("at least one style must have a share above 0")
        return self


class WarmStart(Section):
    """Supervised learning on generated solutions, once per study: every rule and seed starts from its result."""

    seed: Seed = 0
    batches: PositiveInt = 300
    batch_size: PositiveInt = 48
    learning_rate: PositiveFloat = 5e-3
    styles: Styles = Styles()


class Training(Section):
    """Group relative policy optimisation, the same for every rule."""

    steps: PositiveInt = Field(description="Rollout phases.")
    prompts_per_step: PositiveInt = 16
    group_size: int = Field(default=8, ge=2, description="G: responses per prompt.")
    mini_batches: PositiveInt = Field(default=1, description="Optimiser updates per pass over a rollout.")
    epochs: PositiveInt = Field(default=1, description="Passes over a rollout.")
    learning_rate: PositiveFloat = 3e-4
    warmup_steps: NonNegativeInt = Field(default=0, description="Optimiser updates of linear warm-up.")
    weight_decay: NonNegativeFloat = 0.0
    adam_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    adam_eps: PositiveFloat = 1e-8
    max_grad_norm: PositiveFloat = 1.0
    clip_low: float = Field(default=0.2, ge=0, le=1)
    clip_high: NonNegativeFloat = 0.2
    kl_coefficient: NonNegativeFloat = Field(default=0.0, description="Weight of the KL to the initial model.")
    normalize_std: bool = Field(default=True, description="Divide advantages by the group's standard deviation.")
    temperature: PositiveFloat = Field(default=1.0, description="Of sampling, and of the log-probabilities.")
    max_new_tokens: PositiveInt = Field(default=96, description="Longer responses are truncated.")
    mask_truncated: bool = Field(
        default=False,
        description="Truncated responses bear no loss and count nowhere, also not in the advantages of their group.",
    )
    micro_batch_tokens: PositiveInt = Field(default=16384, description="Tokens, padding included, per forward pass.")
    rollout_batch_size: PositiveInt = Field(default=256, description="Responses sampled side by side.")
    importance_cap: float | None = Field(
        default=None,
        ge=1,
        description="Correct the difference of engine and trainer: each token's term times its probability in the "
        "trainer over that in the engine, at most this; null does not correct.",
    )
    checkpoint_every: PositiveInt = Field(default=10, description="Steps between the points where it can resume.")

    @model_validator(mode="after")
    def _divisible(self) -> "Training":
        if self.prompts_per_step % self.mini_batches:
            raise ValueError(
                f"mini_batches = {self.mini_batches}: must divide prompts_per_step = {self.prompts_per_step}, "
                "since a mini-batch holds whole groups"
            )
        return self


class TransformersRollout(Section):
    """Sampling by transformers."""

    engine: Literal["transformers"] = "transformers"


class VllmRollout(Section):
    """Sampling by vLLM, in the processes that train; it needs an environment with vLLM."""

    engine: Literal["vllm"]
    dtype: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="What the engine computes in.")
    tensor_parallel: PositiveInt = Field(
        default=1, description="Processes of a training that share one engine; an evaluation is one process."
    )
    memory_share: float = Field(
        default=0.6, gt=0, lt=1, description="Of a GPU's memory, for the engine's weights and KV cache."
    )
    cpu_cache_gib: PositiveFloat = Field(default=1.0, description="GiB of KV cache where there is no GPU.")
    sleep: bool = Field(default=True, description="Give the GPU's memory back while the trainer works.")


class Compute(Section):
    """Processes that one training runs on. No result depends on their number, but for rounding."""

    nodes: PositiveInt = Field(default=1, description="More than one are those of a Slurm allocation.")
    gpus_per_node: NonNegativeInt = Field(default=0, description="One process for each; 0 trains on the CPU.")
    cpu_processes: PositiveInt = Field(default=1, description="Processes of a node without GPUs.")
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="Every process holds all weights (ddp), or they are sharded (fsdp)."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="What forward and backward compute in; weights, gradients and optimiser are float32.",
    )
    activation_checkpointing: bool = Field(
        default=False, description="Compute a layer's activations again in the backward pass instead of keeping them."
    )
    memory_gb: PositiveFloat = Field(
        default=8.0,
        description="Asked of Slurm on each node of a training, in 10^9 bytes; without GPUs, more at each attempt.",
    )
    gpu_memory_gb: PositiveFloat = Field(default=80.0, description="Of one GPU, in 10^9 bytes, for `balagg plan`.")
    timeout_minutes: PositiveInt = Field(default=60, description="A process that waits longer for others gives up.")

    @property
    def processes_per_node(self) -> int:
        """Ranks of a node."""
        return self.gpus_per_node or self.cpu_processes

    @property
    def processes(self) -> int:
        """Ranks of one training."""
        return self.nodes * self.processes_per_node

    @model_validator(mode="after")
    def _computable(self) -> "Compute":
        if self.dtype == "bfloat16" and self.strategy != "fsdp":
            raise ValueError("dtype = 'bfloat16': needs strategy = 'fsdp', which keeps float32 weights beside")
        if self.gpus_per_node and self.cpu_processes > 1:
            raise ValueError(f"cpu_processes = {self.cpu_processes}: for nodes without GPUs; gpus_per_node is not 0")
        return self


class Evaluation(Decoding):
    """How checkpoints are evaluated, the same for every rule and seed; a benchmark may have values of its own."""

    every: PositiveInt = Field(default=20, description="Steps between evaluated checkpoints; the last one always is.")
    seed: Seed = 0
    greedy: bool = Field(default=True, description="One greedy response to each problem besides the samples.")
    batch_size: PositiveInt = Field(default=256, description="Responses sampled side by side.")
    lighteval: bool = Field(
        default=False, description="Score the stored responses by lighteval, too, in an environment of its own."
    )


class DecodingOf(Section):
    """How one benchmark is answered, nothing left open."""

    samples: PositiveInt
    pass_at: list[PositiveInt]
    temperature: PositiveFloat
    top_p: float
    max_new_tokens: PositiveInt
    greedy: bool


CUSTOM_SAMPLES = {"aime-2024": 32, "aime-2025": 32}
"""k of avg@k where nothing is said: many for the benchmarks of 30 problems."""


class Tracking(Section):
    """MLflow: a mirror of the files under results/."""

    enabled: bool = True
    uri: str | None = Field(
        default=None, description="Tracking server or database; else MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."
    )


class Study(Section):
    """A comparison of aggregation rules: each is trained with each seed, evaluated, tabulated and plotted."""

    study: Name = Field(description="Results are written to results/<study>/.")
    description: str = ""
    rules: list[RuleChoice] = Field(min_length=1)
    seeds: list[Seed] = Field(min_length=1)
    threads: PositiveInt = Field(default=1, description="CPU threads of one training or evaluation.")
    verifiers: PositiveInt = Field(
        default=1, description="Processes of one training or evaluation that verify beside generation."
    )
    model: Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")]
    data: Data
    warm_start: WarmStart | None = None
    training: Training
    rollout: Annotated[TransformersRollout | VllmRollout, Field(discriminator="engine")] = TransformersRollout()
    compute: Compute = Compute()
    evaluation: Evaluation = Evaluation()
    tracking: Tracking = Tracking()
    variant: VariantName | None = Field(
        default=None,
        description="Which of the study's settings this is; then results are written to results/<study>/<variant>/. "
        "A file with `variants` leaves it out.",
    )

    @field_validator("rules")
    @classmethod
    def _distinct_rules(cls, rules: list[RuleChoice]) -> list[RuleChoice]:
        _unique(rules, [r.name for r in rules], "name")
        if any(r.name == BASE for r in rules):
            raise ValueError(f"{BASE!r} is the name of the initial model; give the rule another name")
        return rules

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        return _unique(seeds, seeds, "seed")

    @model_validator(mode="after")
    def _fits_together(self) -> "Study":
        arithmetic = [d.kind == "arithmetic" for d in (self.data.train, *self.data.benchmarks)]
        if self.model.kind == "tiny" and not all(arithmetic):
            raise ValueError("model.kind = 'tiny': reads arithmetic only; every dataset must have kind: arithmetic")
        if self.warm_start and self.data.train.kind != "arithmetic":
            raise ValueError(f"warm_start: solutions exist for arithmetic only, data.train is {self.data.train.kind!r}")
        for benchmark in self.data.benchmarks:
            resolved = self.decoding(benchmark.name)
            too_large = [k for k in resolved.pass_at if k > resolved.samples]
            if too_large:
                key = "evaluation.pass_at" if benchmark.pass_at is None else f"pass_at of benchmark {benchmark.name}"
                raise ValueError(f"{key} = {too_large[0]}: at most samples = {resolved.samples} of {benchmark.name}")
            if self.evaluation.lighteval and benchmark.kind == "arithmetic":
                raise ValueError(f"evaluation.lighteval = True: has no task for the arithmetic of {benchmark.name!r}")
        if self.rollout.engine == "transformers" and self.compute.gpus_per_node:
            raise ValueError("rollout.engine = 'transformers': samples on a CPU; compute.gpus_per_node needs 'vllm'")
        if self.rollout.engine == "vllm" and self.compute.processes_per_node % self.rollout.tensor_parallel:
            raise ValueError(
                f"rollout.tensor_parallel = {self.rollout.tensor_parallel}: must divide the "
                f"{self.compute.processes_per_node} processes of a node"
            )
        if self.rollout.engine == "vllm":
            temperatures = {"training": self.training.temperature}
            temperatures |= {f"benchmark {b.name}": self.decoding(b.name).temperature for b in self.data.benchmarks}
            for where, temperature in temperatures.items():
                if not 0.01 <= temperature <= 2:
                    raise ValueError(f"temperature = {temperature} of {where}: rollout.engine = 'vllm' has 0.01 to 2")
        available = getattr(self.data.train, "problems", None) or getattr(self.data.train, "limit", None)
        if available and available < self.training.prompts_per_step:
            raise ValueError(
                f"training.prompts_per_step = {self.training.prompts_per_step}: "
                f"at most the {available} problems of data.train"
            )
        return self

    @property
    def evaluated_steps(self) -> list[int]:
        """Steps whose checkpoints are evaluated; 0, the initial model, is evaluated once for all."""
        last = self.training.steps
        return sorted({*range(self.evaluation.every, last + 1, self.evaluation.every), last})

    @property
    def datasets(self) -> dict[str, ArithmeticData | SourceData]:
        """The training set, under `TRAIN`, and every benchmark, by name."""
        return {TRAIN: self.data.train} | {benchmark.name: benchmark for benchmark in self.data.benchmarks}

    @property
    def full_name(self) -> str:
        """What results and messages call it: the study's name, and the variant's if it is one."""
        return f"{self.study}/{self.variant}" if self.variant else self.study

    @property
    def folder(self) -> Path:
        """Where its results are."""
        return RESULTS / self.full_name

    @property
    def shared_folder(self) -> Path:
        """Where results of all variants together are; the study's own folder if it has none."""
        return RESULTS / self.study

    def decoding(self, benchmark: str) -> DecodingOf:
        """How the named benchmark is answered: by its own values, else the study's, else what is customary."""
        own = self.datasets[benchmark]
        general = self.evaluation.model_dump(include=set(Decoding.model_fields), exclude_none=True)
        values = (
            {"samples": CUSTOM_SAMPLES.get(own.kind, 4), "temperature": 1.0, "top_p": 1.0}
            | {"max_new_tokens": self.training.max_new_tokens}
            | general
            | own.model_dump(include=set(Decoding.model_fields), exclude_none=True)
        )
        powers = [2**i for i in range(1, values["samples"].bit_length())]
        return DecodingOf.model_validate({"pass_at": powers, "greedy": self.evaluation.greedy} | values)

    def rule(self, name: str) -> RuleChoice:
        """The rule that results call ``name``.

        Raises:
            UserError: the study has no such rule.
        """
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise UserError(
            f"--rule {name}: not in study {self.full_name!r}; allowed: {', '.join(r.name for r in self.rules)}"
        )


BASE = "base"
"""Stands where a rule's name does in results of the initial model."""
