"""Plans as tables on the terminal."""

from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from balanced_aggregation.config import TRAIN
from balanced_aggregation.planning.assumptions import GB, LAYER_OVERHEAD_MS, Assumptions
from balanced_aggregation.planning.checks import largest_moments
from balanced_aggregation.planning.limits import longest_prompt
from balanced_aggregation.planning.plan import StudyPlan
from balanced_aggregation.terminal import number_table

WIDTH = 98
"""Characters of a line, at most."""

CASES = ("expected", "worst")


def print_plans(plans: list[StudyPlan], assumptions: Assumptions) -> None:
    """Print a section for each plan, their sum, and the assumptions."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    for plan in plans:
        _print_plan(console, plan, assumptions)
    if len(plans) > 1:
        _print_total(console, plans)
    _print_assumptions(console, plans, assumptions)


def _print_plan(console: Console, plan: StudyPlan, assumptions: Assumptions) -> None:
    study, compute = plan.study, plan.study.compute
    console.rule(Text(plan.title, "bold"), align="left")
    where = f"{compute.nodes} x {compute.gpus_per_node} GPUs" if compute.gpus_per_node else "CPU study"
    console.print(
        f"{where}, {compute.processes} process{'es' * (compute.processes > 1)} a training, {compute.strategy}, "
        f"{compute.dtype}; rollouts by {study.rollout.engine}"
    )
    console.print(
        f"{len(study.rules)} rules x {len(study.seeds)} seeds = {plan.trainings} trainings of {study.training.steps:,} "
        f"steps ({plan.updates:,} updates), {plan.checkpoints} checkpoints evaluated"
    )
    model = plan.model
    console.print(
        f"{model.parameters:,} parameters ({model.family}, {model.layers} layers, {model.positions:,} positions), "
        f"{model.embedding_share:.1%} in {'the tied embedding' if model.tied else 'embedding and output layer'}"
    )
    console.print(_token_table(plan))
    console.print(_memory_table(plan))
    _print_memory_notes(console, plan)
    console.print(_hours_table(plan))
    _print_hours_notes(console, plan, assumptions)
    for warning in plan.warnings:
        console.print(f"warning: {warning}", style="yellow")
    console.print()


def _token_table(plan: StudyPlan) -> Table:
    table = number_table("", "prompts", "responses", "tokens, expected", "tokens, worst")
    training, trained = plan.sampled, plan.sampled.times(plan.study.training.epochs)
    rows = {
        "sampled, a training": training,
        "trained on, a training": trained,
        "evaluated, a checkpoint": plan.evaluated,
        "sampled, the study": training.times(plan.trainings),
        "trained on, the study": trained.times(plan.trainings),
        "evaluated, the study": plan.evaluated.times(plan.checkpoints),
    }
    for name, tokens in rows.items():
        table.add_row(name, f"{tokens.prompts:,}", f"{tokens.responses:,}", *(_big(getattr(tokens, c)) for c in CASES))
    return table


def _memory_table(plan: StudyPlan) -> Table:
    largest = largest_moments(plan.moments)
    scale, unit = _memory_unit(plan)
    table = number_table(f"memory of one {plan.device}, {unit}", *largest)
    for item in dict.fromkeys(name for moment in largest.values() for name in moment.items):
        values = [moment.items.get(item, 0) for moment in largest.values()]
        if any(values):
            table.add_row(item, *(f"{value / scale:.2f}" if value else "" for value in values))
    table.add_section()
    table.add_row("total", *(f"{moment.total / scale:.2f}" for moment in largest.values()), style="bold")
    if plan.study.compute.gpus_per_node:
        verdicts = [_verdict(plan, moment.total) for moment in largest.values()]
        table.add_row(f"in {plan.study.compute.gpu_memory_gb:g} GB", *verdicts, style="bold")
    return table


def _print_memory_notes(console: Console, plan: StudyPlan) -> None:
    study, (scale, unit) = plan.study, _memory_unit(plan)
    for phase, largest in largest_moments(plan.moments).items():
        others = [f"{m.name} {m.total / scale:.2f}" for m in plan.moments if m.phase == phase and m is not largest]
        if others:
            console.print(f"{phase}: most at {largest.name!r}; {', '.join(others)}")
    checkpointing = "with" if study.compute.activation_checkpointing else "without"
    console.print(f"largest micro-batch: {plan.micro_batch:,} tokens, {checkpointing} activation checkpointing")
    for phase, engine, longest, holds in plan.caches():
        console.print(
            f"KV cache in {phase}: {max(engine.cache, 0) / scale:.2f} {unit} at {engine.token:,} bytes a token: "
            f"{holds:,} sequences of full length ({longest:,})"
        )
    if not study.compute.gpus_per_node:
        total = max(m.total for m in plan.moments if m.phase != "evaluation") * study.compute.processes_per_node
        console.print(f"RAM of a node: {total / scale:.2f} {unit}, beside some 1 GB a process of Python's libraries")
    if plan.sleeping_bytes:
        console.print(f"RAM of a node for weights of sleeping engines: {plan.sleeping_bytes / GB:,.0f} GB")
    console.print(
        f"disk: {_bytes(plan.checkpoint_bytes)} a training, {_bytes(plan.checkpoint_bytes * plan.trainings)} in all"
    )


def _hours_table(plan: StudyPlan) -> Table:
    table = number_table(
        f"{plan.device}-hours", "training, expected", "training, worst", "study, expected", "study, worst"
    )
    shares = plan.checkpoints / plan.trainings
    rows: dict[str, list[float]] = {}
    for stage in ("rollout", "update", "evaluation"):
        per_training = [getattr(plan.hours[case], stage) * (shares if stage == "evaluation" else 1) for case in CASES]
        rows[stage] = per_training + [plan.study_hours(case)[stage] for case in CASES]
    for stage, values in rows.items():
        table.add_row(stage, *map(_hours, values))
    table.add_section()
    table.add_row("sum", *map(_hours, map(sum, zip(*rows.values(), strict=True))), style="bold")
    return table


def _print_hours_notes(console: Console, plan: StudyPlan, assumptions: Assumptions) -> None:
    hours, study = plan.hours["expected"], plan.study
    rollout, update = hours.step_seconds
    clock = (rollout + update) * study.training.steps / 3600
    worst = sum(plan.hours["worst"].step_seconds) * study.training.steps / 3600
    responses = study.training.prompts_per_step * study.training.group_size
    rate = (plan.sampled.expected / plan.sampled.responses - _mean_prompt(plan, assumptions)) * responses
    console.print(
        f"a step, expected: rollout {_seconds(rollout)} ({hours.side_by_side} side by side, "
        f"{rate / rollout / study.compute.processes:,.0f} tokens/s a {plan.device}), update {_seconds(update)}"
    )
    work = hours.work
    achieved = work.useful / study.compute.processes / update
    speed = f"{achieved / 1e12:.0f} TFLOP/s" if achieved >= 1e13 else f"{achieved / 1e9:,.1f} GFLOP/s"
    line = f"  of the update: {work.useful:.2e} useful operations, {speed} a {plan.device}"
    if study.compute.gpus_per_node:
        peak = assumptions.peak_tflops if study.compute.dtype == "bfloat16" else assumptions.peak_float32_tflops
        line += f", {achieved / peak / 1e12:.0%} of peak; communication {_seconds(work.communicating)}"
    console.print(line)
    console.print(
        f"a training by the clock: {_hours(clock)} h expected, {_hours(worst)} h at worst, without verification"
    )


def _mean_prompt(plan: StudyPlan, assumptions: Assumptions) -> float:
    prompt = longest_prompt(plan.study, TRAIN)
    return max(prompt if plan.study.model.kind == "tiny" else prompt * assumptions.mean_prompt, 1.0)


def _print_total(console: Console, plans: list[StudyPlan]) -> None:
    console.rule(Text("all variants", "bold"), align="left")
    table = number_table("device-hours", "trainings", "checkpoints", "expected", "worst")
    for plan in plans:
        sums = [sum(plan.study_hours(case).values()) for case in CASES]
        table.add_row(plan.title, str(plan.trainings), str(plan.checkpoints), *map(_hours, sums))
    table.add_section()
    total = [sum(sum(plan.study_hours(case).values()) for plan in plans) for case in CASES]
    counts = (str(sum(getattr(plan, name) for plan in plans)) for name in ("trainings", "checkpoints"))
    table.add_row("sum", *counts, *map(_hours, total), style="bold")
    console.print(table)
    console.print()


def _print_assumptions(console: Console, plans: list[StudyPlan], assumptions: Assumptions) -> None:
    console.rule("assumed (each is a flag)", align="left")
    on_gpus = any(plan.study.compute.gpus_per_node for plan in plans)
    values = []
    for field in fields(assumptions):
        value = getattr(assumptions, field.name)
        if value is None:
            used = sorted({plan.study.rollout.engine for plan in plans})
            value = " / ".join(f"{LAYER_OVERHEAD_MS[engine]:g} ({engine})" for engine in used)
        if field.name.startswith("cpu_") != on_gpus or field.name.startswith(("mean", "utilization", "layer")):
            values.append(f"--{field.name.replace('_', '-')} {value}")
    console.print(", ".join(values))


def _verdict(plan: StudyPlan, total: float) -> str:
    return "fits" if plan.fits(total) else "does not fit"


def _memory_unit(plan: StudyPlan) -> tuple[float, str]:
    return (GB, "GB") if max(moment.total for moment in plan.moments) >= GB else (1e6, "MB")


def _bytes(value: float) -> str:
    for scale, unit in ((1e12, "TB"), (1e9, "GB")):
        if value >= scale:
            return f"{value / scale:,.1f} {unit}"
    return f"{value / 1e6:,.1f} MB"


def _big(value: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:,.0f}"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def _seconds(value: float) -> str:
    return f"{value / 60:,.1f} min" if value >= 120 else f"{value:.3g} s"
