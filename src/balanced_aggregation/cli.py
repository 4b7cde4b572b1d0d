"""The command `balagg`: one subcommand for each stage of the workflow, so that any of them can be run by hand.

Stages import what they need when they run: torch and MLflow take seconds to load.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from balanced_aggregation.checkpoints import Checkpoint
from balanced_aggregation.commands.arguments import StudyFile
from balanced_aggregation.commands.track import track
from balanced_aggregation.config import Study
from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.errors import GoldError, InfrastructureError, Interrupted, UserError
from balanced_aggregation.files import full_disk, is_full, write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.planning.assumptions import Assumptions
from balanced_aggregation.study_file import load_studies, load_study

Rule = Annotated[str, tyro.conf.arg(help="Name of an aggregation rule of the study.")]
Seed = Annotated[int, tyro.conf.arg(help="A training seed of the study.")]
Dataset = Annotated[str, tyro.conf.arg(help="A benchmark, or train.")]
CheckpointName = Annotated[str, tyro.conf.arg(help="base, or <rule>/seed<seed>/step<step>.")]
BenchmarkName = Annotated[str, tyro.conf.arg(help="A benchmark of the study.")]
Flag = tyro.conf.FlagCreatePairsOff[bool]

app = tyro.extras.SubcommandApp()
app.command(track, name="track", help="MLflow: a server of one's own, and what the workflow tells it.")


@app.command
def validate(study: StudyFile) -> None:
    """Check a study file and say what it will run."""
    for loaded in load_studies(study):
        runs = len(loaded.rules) * len(loaded.seeds)
        names = ", ".join(rule.name for rule in loaded.rules)
        variant = f", variant {loaded.variant}" if loaded.variant else ""
        print(f"{study}{variant}: {len(loaded.rules)} rules ({names}) x {len(loaded.seeds)} seeds", end="")
        print(f" = {runs} trainings of {loaded.training.steps} steps, evaluated at {loaded.evaluated_steps}")


@app.command
def plan(
    study: StudyFile,
    json: Annotated[Path | None, tyro.conf.arg(help="Write the numbers to this file as well.")] = None,
    config: Annotated[Path | None, tyro.conf.arg(help="A config.json that says what shapes the model has.")] = None,
    assumptions: tyro.conf.OmitArgPrefixes[Assumptions] = Assumptions(),  # noqa: B008
) -> None:
    """Say what a study needs before it runs: tokens, memory, hours; refuse what cannot work."""
    from balanced_aggregation.files import write_json
    from balanced_aggregation.planning.architecture import find_architecture
    from balanced_aggregation.planning.export import to_json
    from balanced_aggregation.planning.plan import make_plan
    from balanced_aggregation.planning.report import print_plans

    assumptions.check()
    plans = [make_plan(s, find_architecture(s.model, config), assumptions) for s in load_studies(study)]
    print_plans(plans, assumptions)
    if json:
        write_json(json, to_json(plans, assumptions))
    variant = (lambda p: f"{p.title}: ") if len(plans) > 1 else lambda p: ""
    if problems := [variant(p) + problem for p in plans for problem in p.problems]:
        raise UserError("\n".join(problems))


@app.command
def status(
    study: StudyFile,
    watch: Annotated[Flag, tyro.conf.arg(help="Show it again until all is done.")] = False,
    every: Annotated[float, tyro.conf.arg(help="Seconds between two looks of --watch.")] = 10.0,
    json: Annotated[Flag, tyro.conf.arg(help="Print it as JSON, for other programs.")] = False,
) -> None:
    """Say how far a study is, its trainings above all; it only reads, so it may be asked at any time."""
    import time
    from json import dumps

    from balanced_aggregation.status.report import print_statuses
    from balanced_aggregation.status.report import watch as show_again
    from balanced_aggregation.status.study import study_statuses, to_json

    if watch and json:
        raise UserError("--watch and --json: give one of them")
    if not 1 <= every <= 86400:
        raise UserError(f"--every {every:g}: must be from 1 second to a day, 86400")
    studies = load_studies(study, call_rules=False)
    if json:
        print(dumps(to_json(study_statuses(studies, time.time())), indent=2))
    elif watch:
        show_again(lambda: study_statuses(studies, time.time()), every)
    else:
        print_statuses(study_statuses(studies, time.time()))


@app.command
def diagnose(
    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE...", help="Read as one log.")],
    options: tyro.conf.OmitArgPrefixes[Options] = Options(),  # noqa: B008
    json: Annotated[Path | None, tyro.conf.arg(help="Write all numbers to this file as well.")] = None,
    figure: Annotated[Path | None, tyro.conf.arg(help="Draw them, as PNG or PDF by the file's name.")] = None,
) -> None:
    """Say what each aggregation rule would make of rollouts that any trainer wrote, JSONL or Parquet.

    Ends with exit code 3 if the log is degenerate: then it says why, and analyses nothing.
    """
    from balanced_aggregation.commands.diagnose import diagnose as run

    run(files, options, json, figure)


@app.command
def schema(output: tyro.conf.Positional[Path]) -> None:
    """Write the JSON schema of study files."""
    from balanced_aggregation.study_schema import json_schema

    write_text(output, json_schema())


@app.command
def source_model(study: StudyFile) -> None:
    """Make or fetch the model and its tokenizer, before any warm start."""
    from balanced_aggregation.data.arithmetic import SYMBOLS
    from balanced_aggregation.models import character_tokenizer, create_tiny_model, load_pretrained, save_model
    from balanced_aggregation.seeding import derive_seed

    loaded, layout = _open(study)
    if loaded.model.kind == "tiny":
        tokenizer = character_tokenizer(SYMBOLS)
        seed = loaded.warm_start.seed if loaded.warm_start else 0
        model = create_tiny_model(loaded.model, tokenizer, derive_seed(seed, "initial weights"))
    else:
        model, tokenizer = load_pretrained(loaded.model)
    save_model(model, tokenizer, layout.source_model)
    print(f"source model: {sum(p.numel() for p in model.parameters()):,} parameters")


@app.command
def prepare_statements(study: StudyFile, name: Dataset) -> None:
    """Write the statements and golds of a dataset, from the hub, a local copy, or generated."""
    from balanced_aggregation.data.prepare import prepare_statements as prepare

    _print_counts(name, prepare(*_open(study), name))


@app.command
def prepare_problems(study: StudyFile, name: Dataset) -> None:
    """Write the problems of a benchmark, or those to train on, as the study's model is asked."""
    from balanced_aggregation.data.prepare import prepare_problems as prepare
    from balanced_aggregation.models import load_tokenizer

    loaded, layout = _open(study)
    _print_counts(name, prepare(loaded, layout, load_tokenizer(layout.source_model), name))


@app.command
def contamination(study: StudyFile) -> None:
    """Report which problems of benchmarks are among those to train on."""
    from balanced_aggregation.data.prepare import report_contamination

    print(report_contamination(*_open(study)).to_string(index=False))


@app.command
def warm_start(study: StudyFile) -> None:
    """Supervised learning before RL; its result is the initial model of every training."""
    from balanced_aggregation.data import read_problems
    from balanced_aggregation.locks import exclusive
    from balanced_aggregation.models import load_model, save_model
    from balanced_aggregation.seeding import make_deterministic
    from balanced_aggregation.training.warm_start import warm_start as run

    loaded, layout = _open(study)
    if loaded.warm_start is None:
        raise UserError(f"{study}: has no warm_start")
    make_deterministic(loaded.threads)
    model, tokenizer = load_model(layout.source_model)
    with exclusive(layout.warm_model, "learning this model"):
        losses = run(model, tokenizer, read_problems(layout.train_problems)["prompt"].tolist(), loaded.warm_start)
        save_model(model, tokenizer, layout.warm_model)
    print(f"warm start: loss {losses[0]:.3f} -> {losses[-1]:.3f} nats a token in {len(losses)} batches")


@app.command
def train(study: StudyFile, rule: Rule, seed: Seed) -> None:
    """Train under one rule with one seed; goes on where a killed training stopped."""
    from balanced_aggregation.printing import print_regardless
    from balanced_aggregation.training.interruption import Interruption

    print_regardless()
    with Interruption() as interruption:
        from balanced_aggregation.commands.train import train as run  # takes seconds, in which a signal may come

        run(*_open(study), rule, seed, interruption)


@app.command
def generate(study: StudyFile, checkpoint: CheckpointName, benchmark: BenchmarkName) -> None:
    """Sample responses of a checkpoint to a benchmark; goes on where it was cut off."""
    from balanced_aggregation.commands.generate import generate as run

    run(*_open_evaluation(study, checkpoint, benchmark))


@app.command
def score(study: StudyFile, checkpoint: CheckpointName, benchmark: BenchmarkName) -> None:
    """Judge the responses of a checkpoint to a benchmark; goes on where it was cut off."""
    from balanced_aggregation.commands.score import score as run

    run(*_open_evaluation(study, checkpoint, benchmark))


@app.command
def lighteval(study: StudyFile, checkpoint: CheckpointName, benchmark: BenchmarkName) -> None:
    """Score the same responses by lighteval, in its own environment."""
    from balanced_aggregation.commands.score import lighteval as run

    run(*_open_evaluation(study, checkpoint, benchmark))


@app.command
def collect(study: StudyFile) -> None:
    """Gather all evaluations and training metrics in Parquet files."""
    from balanced_aggregation.evaluation.collect import collect_results

    for warning in collect_results(*_open(study)):
        print(f"WARNING: {warning}", file=sys.stderr)


@app.command
def tables(study: StudyFile) -> None:
    """Write the tables."""
    from balanced_aggregation.reporting.tables import write_tables

    loaded, layout = _open(study)
    write_tables(loaded, layout)
    print((layout.tables / "main.md").read_text(encoding="utf-8"))


@app.command
def paper_table(
    studies: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(help="The study's file, or those of all its variants.")
    ],
) -> None:
    """Write the table that has the layout of the paper's: one for all variants of a study."""
    from balanced_aggregation.reporting.paper_table import write_paper_table

    write_paper_table([load_study(path) for path in studies])


@app.command
def power(
    study: StudyFile,
    points: Annotated[
        tuple[float, ...], tyro.conf.arg(help="True differences to see, in points: 1 is an accuracy of 0.01.")
    ] = (1.0, 2.0, 5.0),
    comparisons: Annotated[
        int | None, tyro.conf.arg(help="Comparisons to correct for; those of the table main, unless given.")
    ] = None,
) -> None:
    """Say how many seeds it takes to see a difference, from the variances in the study's results so far."""
    from balanced_aggregation.reporting.power_report import print_power

    if not points or not all(0 < value < 100 for value in points):
        raise UserError(f"--points {' '.join(f'{value:g}' for value in points)}: must each be above 0 and below 100")
    if comparisons is not None and comparisons < 1:
        raise UserError(f"--comparisons {comparisons}: must be at least 1")
    for loaded in load_studies(study):
        print_power(loaded, Layout(loaded), points, comparisons)


@app.command
def figures(study: StudyFile) -> None:
    """Draw the figures."""
    from balanced_aggregation.reporting.figures import write_figures

    write_figures(*_open(study))


def _open(study: Path) -> tuple[Study, Layout]:
    loaded = load_study(study)
    return loaded, Layout(loaded)


def _open_evaluation(study: Path, checkpoint: str, benchmark: str) -> tuple[Study, Layout, Checkpoint, str]:
    loaded, layout = _open(study)
    names = [b.name for b in loaded.data.benchmarks]
    if benchmark not in names:
        raise UserError(f"--benchmark {benchmark}: not in study {loaded.full_name!r}; allowed: {', '.join(names)}")
    return loaded, layout, Checkpoint.parse(loaded, checkpoint), benchmark


def _print_counts(name: str, manifest: dict[str, object]) -> None:
    counts = {key: value for key, value in manifest.items() if isinstance(value, int)}
    print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in counts.items()))


def main() -> None:
    """Run a subcommand; a user's mistake ends in one line and exit code 1, a training asked to end in one and 75."""
    # One thread unless the study says otherwise: two processes with two threads each on two cores crawl.
    for name, value in {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }.items():
        os.environ.setdefault(name, value)
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1  # processes of one training, each with its message
    label = f"process {os.environ.get('RANK')}: error" if several else "error"
    try:
        app.cli(prog="balagg", description="Aggregation rules of GRPO, compared.")
    except Interrupted as error:
        if not several or os.environ.get("RANK") == "0":
            print(error, file=sys.stderr, flush=True)
        sys.exit(Interrupted.exit_code)
    except (UserError, GoldError) as error:
        sys.exit(f"{label}: {error}")
    except InfrastructureError as error:
        sys.exit(f"{label}: the machinery failed, no result was written: {error}")
    except FileNotFoundError as error:
        sys.exit(f"{label}: {error.filename or error}: no such file; an earlier stage makes it")
    except OSError as error:
        if error.filename and is_full(error):
            error = full_disk(Path(error.filename))
        sys.exit(f"{label}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
