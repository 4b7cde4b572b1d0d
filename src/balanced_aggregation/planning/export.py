"""Plans as numbers, for a JSON file."""

from dataclasses import asdict
from typing import Any

from balanced_aggregation.planning.assumptions import Assumptions
from balanced_aggregation.planning.plan import StudyPlan


def to_json(plans: list[StudyPlan], assumptions: Assumptions) -> dict[str, Any]:
    """The numbers of plans: bytes, seconds, device-hours, operations."""
    return {"assumptions": asdict(assumptions), "plans": [_numbers(plan) for plan in plans]}


def _numbers(plan: StudyPlan) -> dict[str, Any]:
    study = plan.study
    return {
        "study": study.study,
        "variant": getattr(study, "variant", None),
        "device": plan.device,
        "trainings": plan.trainings,
        "steps": study.training.steps,
        "optimiser_updates": plan.updates,
        "evaluated_checkpoints": plan.checkpoints,
        "model": asdict(plan.model) | {"embedding_share": plan.model.embedding_share},
        "sampled_per_training": asdict(plan.sampled),
        "trained_per_training": asdict(plan.sampled.times(study.training.epochs)),
        "evaluated_per_checkpoint": asdict(plan.evaluated),
        "largest_micro_batch_tokens": plan.micro_batch,
        "memory_bytes": [
            {"phase": m.phase, "moment": m.name, "items": m.items, "total": m.total, "fits": plan.fits(m.total)}
            for m in plan.moments
        ],
        "kv_cache": {
            phase: {"bytes": engine.cache, "bytes_per_token": engine.token, "full_length_sequences": holds}
            for phase, engine, _, holds in plan.caches()
        },
        "host_bytes_of_sleeping_engines_per_node": plan.sleeping_bytes,
        "disk_bytes_per_training": plan.checkpoint_bytes,
        "device_hours": {case: asdict(hours) | {"study": plan.study_hours(case)} for case, hours in plan.hours.items()},
        "problems": plan.problems,
        "warnings": plan.warnings,
    }
