"""How far one training is, from its files and what is alive."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from balanced_aggregation.attempts import Attempt, read_attempt
from balanced_aggregation.config import Study
from balanced_aggregation.files import json_digest
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.slurm import comment_of
from balanced_aggregation.status.living import Job, Living
from balanced_aggregation.status.tail import last_line, last_rows, last_words, modified, read_object
from balanced_aggregation.status.words import ago, looks_like_error

State = Literal["done", "running", "waiting", "interrupted", "failed", "killed"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "interrupted", "failed", "killed")

AVERAGED_STEPS = 10
"""The reward and the pace are means over so many steps, the last ones."""

_PHASES = ("synchronise_seconds", "rollout_seconds", "verify_seconds", "update_seconds")
_STARTING_SECONDS = 300.0
"""So long after Snakemake has begun a log, a training that has said nothing may still be loading."""
_SILENT_STEPS, _SILENT_SECONDS = 5, 600.0
"""A training that cannot be asked is taken for dead after so many steps' time, and at least so many seconds."""

_LARGEST = 1e9
"""A larger reward or time is none."""


@dataclass(frozen=True)
class RunStatus:
    """One training of a study."""

    rule: str
    seed: int
    state: State
    step: int
    """The last that was done."""
    steps: int
    """Those of a whole training."""
    reward: float | None = None
    """Mean over the last `AVERAGED_STEPS` steps."""
    seconds_left: float | None = None
    """Of a running one, at the pace of the last `AVERAGED_STEPS` steps."""
    slurm_job: str | None = None
    """Id of the job that is at it or waits to be, else of the one that was last."""
    detail: str = ""
    """What else there is to say, in one line: why it failed, what it waits for, from where it goes on."""
    log: str | None = None
    """The log's path, of a training that did not end well."""
    log_line: str | None = None
    """The log's last line, where nothing else says why."""


@dataclass(frozen=True)
class _Progress:
    """What the journals of a training tell."""

    step: int
    reward: float | None
    pace: float | None
    """Seconds a step."""
    last: float | None
    """When the last step was written, in seconds since the epoch."""
    checkpoint: int
    """Step that the next attempt goes on from."""


def run_status(study: Study, layout: Layout, rule: str, seed: int, living: Living, now: float) -> RunStatus:
    """Tell the state of one training.

    Args:
        study: what is trained.
        layout: where its files are.
        rule: name of a rule of the study.
        seed: one of its training seeds.
        living: processes and jobs.
        now: seconds since the epoch.
    """
    folder, steps = layout.run(rule, seed), study.training.steps
    finished = read_object(folder / "run.json")
    outdated = finished is not None and not _is_of(finished, study, rule)
    if finished is not None and not outdated:
        return RunStatus(rule, seed, "done", steps, steps, _progress(folder).reward)

    attempt = read_attempt(layout.attempt(rule, seed))
    job = living.job(attempt, comment_of("train", [study.full_name, rule, str(seed)]))
    reached = _progress(folder / "state")
    log = layout.log(f"train/{rule}/seed{seed}")
    known = {"reward": reached.reward, "slurm_job": job.id if job else None}
    place = rule, seed

    if attempt and _runs(attempt, job, living, reached, study, now):
        left = max(steps - reached.step, 0) * reached.pace if reached.pace is not None else None
        detail = _running(attempt, job, living, reached, now)
        return RunStatus(*place, "running", reached.step, steps, seconds_left=left, detail=detail, **known)
    ended = attempt if attempt and attempt.state in ("failed", "done") and job and job.id == attempt.slurm_job else None
    begun = job and not job.waits and not ended and job.state != "COMPLETING"
    if begun or _starts(log, layout.attempt(rule, seed), now):
        detail = ", ".join([*([job.title] if job else []), "starting"])
        return RunStatus(*place, "running", reached.step, steps, detail=detail, **known)
    if job and job.waits:
        detail = f"{_before(attempt)}{job.title} waits" + (f" ({job.reason})" if job.reason not in ("", "None") else "")
        return RunStatus(*place, "waiting", reached.step, steps, detail=detail, **known)
    return _at_rest(place, attempt, reached, steps, log, living, outdated, now)


def _at_rest(
    place: tuple[str, int],
    attempt: Attempt | None,
    reached: _Progress,
    steps: int,
    log: Path,
    living: Living,
    outdated: bool,
    now: float,
) -> RunStatus:
    """The state of a training that nothing is at."""
    line = last_line(log)
    known = {"step": reached.step, "steps": steps, "reward": reached.reward}
    known["slurm_job"] = attempt.slurm_job if attempt else None
    if outdated and (not attempt or attempt.state == "done"):
        detail = "finished under other settings; trains anew"
        return RunStatus(*place, "waiting", 0, steps, detail=detail)
    if attempt and attempt.state == "failed":
        detail = last_words(attempt.reason or "") or line or "gives no reason"
        return RunStatus(*place, "failed", detail=detail, log=str(log), **known)
    if attempt and attempt.state == "interrupted":
        detail = f"{last_words(attempt.reason or '') or 'asked to end'}; goes on with the next snakemake"
        return RunStatus(*place, "interrupted", detail=detail, **known)
    if (attempt and attempt.state == "running") or (not attempt and reached.last is not None):
        onward = f"goes on from step {reached.checkpoint}" if reached.checkpoint else "starts again"
        job = f"Slurm job {attempt.slurm_job}, " if attempt and attempt.slurm_job else ""
        detail = f"{job}after step {reached.step} of {steps}; {onward}"
        if attempt and not living.knows(attempt):
            detail += f" (on {attempt.host}, silent for {ago(now - _last_sign(attempt, reached))})"
        return RunStatus(*place, "killed", detail=detail, log=str(log) if line else None, log_line=line, **known)
    if not attempt and line and (looks_like_error(line) or now - (modified(log) or now) > _STARTING_SECONDS):
        return RunStatus(*place, "failed", detail=line, log=str(log), **known)
    detail = "was done, but run.json is missing" if attempt else ""
    return RunStatus(*place, "waiting", detail=detail, **known)


def _runs(attempt: Attempt, job: Job | None, living: Living, reached: _Progress, study: Study, now: float) -> bool:
    """Whether an attempt is under way."""
    if attempt.state != "running":
        return False
    if (job and not job.waits and job.id == attempt.slurm_job) or living.runs(attempt):
        return True
    if living.knows(attempt) or (job and job.waits):
        return False
    longest = _SILENT_STEPS * reached.pace if reached.pace else 60.0 * study.compute.timeout_minutes
    return now - _last_sign(attempt, reached) < max(longest, _SILENT_SECONDS)


def _last_sign(attempt: Attempt, reached: _Progress) -> float:
    return max(attempt.started, reached.last or 0.0)


def _running(attempt: Attempt, job: Job | None, living: Living, reached: _Progress, now: float) -> str:
    parts = [job.title] if job else [f"on {attempt.host}"] if attempt.host != living.host else []
    if job and job.state != "RUNNING":
        parts.append(job.state.lower())
    fresh = reached.last is not None and reached.last >= attempt.started
    silent = now - _last_sign(attempt, reached)
    if not fresh and reached.step <= attempt.first_step:
        parts.append(f"has begun {ago(silent)} ago" + (f" at step {attempt.first_step}" * bool(attempt.first_step)))
    elif not living.knows(attempt) or silent > max(3 * (reached.pace or 0.0), 60.0):
        parts.append(f"last step {ago(silent)} ago")
    return ", ".join(parts)


def _before(attempt: Attempt | None) -> str:
    """How the attempt ended that the next one comes after."""
    if attempt is None or attempt.state == "done":
        return ""
    reason = last_words(attempt.reason or "")
    ended = "killed" if attempt.state == "running" else attempt.state
    return ended + (f" ({reason})" if reason else "") + "; "


def _starts(log: Path, attempt: Path, now: float) -> bool:
    """Whether Snakemake has just begun a training that has said nothing yet: the log is empty, new, and the latest."""
    try:
        begun = log.stat()
    except OSError:
        return False
    after = begun.st_mtime > (modified(attempt) or 0.0)
    return begun.st_size == 0 and after and now - begun.st_mtime < _STARTING_SECONDS


def _is_of(finished: dict[str, Any], study: Study, rule: str) -> bool:
    """Whether a finished training has the settings that the study has now; its inputs and code are not compared."""
    fingerprint = finished.get("fingerprint")
    settings = json_digest(training_settings(study, rule))
    return isinstance(fingerprint, dict) and fingerprint.get("settings") == settings


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _progress(folder: Path) -> _Progress:
    metrics = last_rows(folder / "metrics.jsonl", AVERAGED_STEPS)
    rewards = [row["reward"] for row in metrics if _is_number(row.get("reward"))]
    seconds = [
        sum(row[phase] for phase in _PHASES)
        for row in last_rows(folder / "timing.jsonl", AVERAGED_STEPS)
        if all(_is_number(row.get(phase)) for phase in _PHASES)
    ]
    names = [path.name.removeprefix("step_") for path in (folder / "resume").glob("step_*")]
    return _Progress(
        step=metrics[-1]["step"] if metrics else 0,
        reward=sum(rewards) / len(rewards) if rewards else None,
        pace=sum(seconds) / len(seconds) if seconds else None,
        last=modified(folder / "metrics.jsonl") if metrics else None,
        checkpoint=max((int(name) for name in names if name.isdecimal()), default=0),
    )
