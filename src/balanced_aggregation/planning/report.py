"""Plans as tables on the terminal, and as numbers in a JSON file."""

from dataclasses import asdict, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from balanced_aggregation.config import TRAIN
from balanced_aggregation.planning.assumptions import GB, LAYER_OVERHEAD_MS, Assumptions
from balanced_aggregation.planning.checks import largest_moments
from balanced_aggregation.planning.limits import longest_prompt, longest_sequence
from balanced_aggregation.planning.plan import StudyPlan

WIDTH = 98
"""Characters of a line, at most."""

CASES = ("expected", "worst")


def print_plans(plans: list[StudyPlan], assumptions: Assumptions) -> None:
    """Print a section for each plan, their sum, and the assumptions."""
    console = Console(width=WIDTH, highlight=False, soft_wrap=False)
    for plan in plans:
        _print_plan(console, plan, assumptions)
    if len(plans) > 1:
        _print_total(console, plans)
    _print_assumptions(console, plans, assumptions)


def to_json(plans: list[StudyPlan], assumptions: Assumptions) -> dict[str, Any]:
    """The numbers of plans: bytes, seconds, device-hours, operations."""
    return {"assumptions": asdict(assumptions), "plans": [_numbers(plan) for plan in plans]}


def _numbers(plan: StudyPlan) -> dict[str, Any]:
    study = plan.study
    return {
        "study": study.study,
        "variant": getattr(study, "variant", None),
        "device": _device(plan),
        "trainings": plan.trainings,
        "steps": study.training.steps,
        "optimiser_updates": _updates(plan),
        "evaluated_checkpoints": plan.checkpoints,
        "model": asdict(plan.model) | {"embedding_share": plan.model.embedding_share},
        "sampled_per_training": asdict(plan.sampled),
        "trained_per_training": asdict(plan.sampled.times(study.training.epochs)),
        "evaluated_per_checkpoint": asdict(plan.evaluated),
        "largest_micro_batch_tokens": plan.micro_batch,
        "memory_bytes": [
            {"phase": m.phase, "moment": m.name, "items": m.items, "total": m.total, "fits": _fits(plan, m.total)}
            for m in plan.moments
        ],
        "kv_cache": {
            phase: {"bytes": engine.cache, "bytes_per_token": engine.token, "full_length_sequences": holds}
            for phase, engine, _, holds in _caches(plan)
        },
        "host_bytes_of_sleeping_engines_per_node": plan.sleeping_bytes,
        "disk_bytes_per_training": plan.checkpoint_bytes,
        "device_hours": {case: asdict(plan.hours[case]) | {"study": plan.study_hours(case)} for case in CASES},
        "problems": plan.problems,
        "warnings": plan.warnings,
    }


def _print_plan(console: Console, plan: StudyPlan, assumptions: Assumptions) -> None:
    study, compute = plan.study, plan.study.compute
    console.rule(f"[bold]{plan.title}[/bold]", align="left")
    where = f"{compute.nodes} x {compute.gpus_per_node} GPUs" if compute.gpus_per_node else "CPU study"
    console.print(
        f"{where}, {compute.processes} process{'es' * (compute.processes > 1)} a training, {compute.strategy}, "
        f"{compute.dtype}; rollouts by {study.rollout.engine}"
    )
    console.print(
        f"{len(study.rules)} rules x {len(study.seeds)} seeds = {plan.trainings} trainings of {study.training.steps:,} "
        f"steps ({_updates(plan):,} updates); {plan.checkpoints} evaluated checkpoints, the initial model among them"
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
        console.print(f"[yellow]warning:[/yellow] {warning}", markup=True)
    for problem in plan.problems:
        console.print(f"[red]refused:[/red] {problem}", markup=True)
    console.print()


def _token_table(plan: StudyPlan) -> Table:
    table = _table("", "prompts", "responses", "tokens, expected", "tokens, worst")
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
    table = _table(f"memory of one {_device(plan)}, {unit}", *largest)
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
    updates = [f"{m.name} {m.total / scale:.2f}" for m in plan.moments if m.phase == "update"]
    console.print(f"update, its moments in {unit}: {', '.join(updates)};")
    console.print(
        f"  {plan.micro_batch:,} tokens in the largest micro-batch, activation checkpointing "
        f"{'on' if study.compute.activation_checkpointing else 'off'}"
    )
    for phase, engine, longest, holds in _caches(plan):
        console.print(
            f"KV cache in {phase}: {max(engine.cache, 0) / scale:.2f} {unit} at {engine.token:,} bytes a token: "
            f"{holds:,} sequences of full length ({longest:,})"
        )
    if not study.compute.gpus_per_node:
        total = max(m.total for m in plan.moments if m.phase != "evaluation") * study.compute.processes_per_node
        console.print(
            f"RAM of a node: {total / scale:.2f} {unit}, beside Python and its libraries (about 1 GB a process)"
        )
    if plan.sleeping_bytes:
        console.print(f"RAM of a node for weights of sleeping engines: {plan.sleeping_bytes / GB:,.0f} GB")
    console.print(
        f"disk: {_bytes(plan.checkpoint_bytes)} a training, {_bytes(plan.checkpoint_bytes * plan.trainings)} in all"
    )


def _hours_table(plan: StudyPlan) -> Table:
    table = _table(f"{_device(plan)}-hours", "training, expected", "training, worst", "study, expected", "study, worst")
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
        f"{rate / rollout / study.compute.processes:,.0f} tokens/s a {_device(plan)}), update {_seconds(update)} "
    )
    work = hours.work
    achieved = work.useful / study.compute.processes / update / 1e12
    line = f"  of the update: {work.useful:.2e} useful operations, {achieved:.3g} TFLOP/s a {_device(plan)}"
    if study.compute.gpus_per_node:
        peak = assumptions.peak_tflops if study.compute.dtype == "bfloat16" else assumptions.peak_float32_tflops
        line += f", {achieved / peak:.0%} of the peak; communication {_seconds(work.communicating)} beside it"
    console.print(line)
    console.print(
        f"a training by the clock: {_hours(clock)} h expected, {_hours(worst)} h at worst, without verification"
    )


def _mean_prompt(plan: StudyPlan, assumptions: Assumptions) -> float:
    prompt = longest_prompt(plan.study, TRAIN)
    return max(prompt if plan.study.model.kind == "tiny" else prompt * assumptions.mean_prompt, 1.0)


def _print_total(console: Console, plans: list[StudyPlan]) -> None:
    console.rule("[bold]all variants[/bold]", align="left")
    table = _table("device-hours", "trainings", "checkpoints", "expected", "worst")
    for plan in plans:
        sums = [sum(plan.study_hours(case).values()) for case in CASES]
        table.add_row(plan.title, str(plan.trainings), str(plan.checkpoints), *map(_hours, sums))
    table.add_section()
    total = [sum(sum(plan.study_hours(case).values()) for plan in plans) for case in CASES]
    counts = (str(sum(getattr(plan, name) for plan in plans)) for name in ("trainings", "checkpoints"))
    table.add_row("sum", *counts, *map(_hours, total), style="bold")
    console.print(table)


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


def _caches(plan: StudyPlan):
    """Phase, engine, tokens of its longest sequence, and how many of those its cache holds."""
    benchmarks = [benchmark.name for benchmark in plan.study.data.benchmarks]
    for phase, names in {"rollout": [TRAIN], "evaluation": benchmarks}.items():
        longest = max(longest_sequence(plan.study, name) for name in names)
        yield phase, plan.engines[phase], longest, plan.engines[phase].full_length(longest)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _updates(plan: StudyPlan) -> int:
    training = plan.study.training
    return training.steps * training.mini_batches * training.epochs


def _device(plan: StudyPlan) -> str:
    return "GPU" if plan.study.compute.gpus_per_node else "process"


def _fits(plan: StudyPlan, total: float) -> bool | None:
    compute = plan.study.compute
    return total <= compute.gpu_memory_gb * GB if compute.gpus_per_node else None


def _verdict(plan: StudyPlan, total: float) -> str:
    return "fits" if _fits(plan, total) else "does not fit"


def _memory_unit(plan: StudyPlan) -> tuple[float, str]:
    return (GB, "GB") if max(moment.total for moment in plan.moments) >= GB else (1e6, "MB")


def _bytes(value: float) -> str:
    return next(
        f"{value / scale:,.1f} {unit}"
        for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"))
        if value >= scale or unit == "MB"
    )


def _big(value: float) -> str:
    return next(
        (f"{value / scale:.4g} {unit}" for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= scale),
        f"{value:,.0f}",
    )


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def _seconds(value: float) -> str:
    return f"{value / 60:,.1f} min" if value >= 120 else f"{value:.3g} s"
