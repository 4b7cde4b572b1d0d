"""Follows one training in MLflow, without the training ever waiting for it."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from balanced_aggregation.config import Study
from balanced_aggregation.errors import Interrupted
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import git_commit
from balanced_aggregation.tracking.client import connect, prepare, warn, warn_only
from balanced_aggregation.tracking.runs import (
    Step,
    Training,
    describe_training,
    known_steps,
    log_steps,
    open_run,
    set_status,
    shows_as_running,
    step_metrics,
)

_EVERY_SECONDS = 5.0
_AFTER_FAILURES = (10.0, 20.0, 40.0, 60.0)
"""Pauses after one failure, two and so on; the last one from then on."""
_SETTLED_SECONDS = 5.0
"""So long after an attempt that was killed by force, what it sent last has arrived, and its steps can be counted."""
_AT_THE_END_SECONDS = 15.0
"""So long a training that ends waits for MLflow; within the grace that clusters give a job."""
_AT_THE_END_EVERY = 2.0


def follow_training(
    study: Study, layout: Layout, rule: str, seed: int, fingerprint: dict[str, Any]
) -> "RunTracker | None":
    """The observer of a training that MLflow follows; None if it does not follow this study."""
    place = read_json(layout.tracking) if study.tracking.enabled and layout.tracking.exists() else None
    if place is None:
        return None
    return RunTracker(place, describe_training(study, rule, seed, fingerprint, git_commit()))


class RunTracker:
    """Mirrors one training in a child run: an observer of the training.

    The run is found again by its key, so a training that goes on after it was killed goes on in its own run, and
    steps that MLflow has already are not logged twice.

    A thread of its own talks to MLflow, and nothing else does: the training only leaves the step's metrics for it. It
    starts with the first step, when the processes of engines and verifiers have been started: none of them is
    forked beside it.
    """

    def __init__(self, place: dict[str, Any], training: Training):
        """Args: content of ``tracking.json``, and the training to show."""
        self._place, self._training = place, training
        self._lock = threading.Lock()  # of the next two
        self._waiting: dict[int, list[Any]] = {}
        self._seen: set[int] = set()
        self._ending = threading.Event()
        self._status, self._deadline = "", 0.0  # read only once it is ending
        self._client: Any = None  # from here on: the thread's own
        self._run_id: str | None = None
        self._away = False
        self._arrived = False
        self._thread = threading.Thread(target=self._work, name="MLflow", daemon=True)
        self._usable = False
        with warn_only(f"MLflow does not follow {training.name}"):
            prepare()  # not in the thread: imports of two threads can meet
            self._usable = True

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Leave the step's metrics for MLflow."""
        if not self._usable:
            return
        step = metrics["step"]
        with self._lock:
            if step not in self._seen:
                self._seen.add(step)
                self._waiting[step] = step_metrics(metrics, timing)
        if self._thread.ident is None:
            self._thread.start()

    def finish(self, steps: Sequence[Step]) -> None:
        """Log what is still missing of all the steps, and end the run."""
        for metrics, timing in steps:
            self.on_step(metrics, timing)
        self._end("FINISHED")

    def give_up(self, error: BaseException) -> None:
        """Hand over what there is, and mark the run as failed, or as killed if somebody ended the training."""
        self._end("KILLED" if isinstance(error, KeyboardInterrupt | Interrupted) else "FAILED")

    def _end(self, status: str) -> None:
        if not self._usable:
            return
        self._status, self._deadline = status, time.monotonic() + _AT_THE_END_SECONDS
        self._ending.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(_AT_THE_END_SECONDS)
        if not self._arrived:
            with self._lock:
                missing = len(self._waiting)
            print(
                f"WARNING: MLflow lacks {missing} steps and the end of {self._training.name}, which are in its files; "
                "`balagg track finish` brings them, which the workflow runs last",
                file=sys.stderr,
                flush=True,
            )

    def _work(self) -> None:
        """What the thread does."""
        failures, pause = 0, 0.0
        while not self._ending.wait(pause):
            failures = 0 if self._deliver() else failures + 1
            pause = _AFTER_FAILURES[min(failures, len(_AFTER_FAILURES)) - 1] if failures else _EVERY_SECONDS
        while not self._deliver(self._status):
            if time.monotonic() + _AT_THE_END_EVERY > self._deadline:
                return
            time.sleep(_AT_THE_END_EVERY)
        self._arrived = True

    def _deliver(self, status: str | None = None) -> bool:
        """Send what is waiting, and the run's end if there is one; whether all of it arrived."""
        try:
            if self._run_id is None:
                self._open()
            with self._lock:
                steps = dict(self._waiting)
            for step in log_steps(self._client, self._run_id, steps):
                with self._lock:
                    del self._waiting[step]
            if status:
                set_status(self._client, self._run_id, status)
        except Exception as error:  # whatever goes wrong in MLflow, its database or its server
            if not self._away:
                warn(f"MLflow does not take what {self._training.name} logs; it is kept and sent again", error)
            self._away = True
            return False
        if self._away:
            print(f"MLflow takes what {self._training.name} logs again", file=sys.stderr, flush=True)
        self._away = False
        return True

    def _open(self) -> None:
        self._client = connect(self._place["uri"])
        # The study runs, and if it is another database this fails.
        self._client.update_run(self._place["run_id"], status="RUNNING")
        if shows_as_running(self._client, self._place, self._training):
            time.sleep(_SETTLED_SECONDS)
        run_id = open_run(self._client, self._place, self._training)
        self._client.update_run(run_id, status="RUNNING")
        known = known_steps(self._client, run_id)
        with self._lock:
            self._seen |= known
            for step in known & self._waiting.keys():
                del self._waiting[step]
        self._run_id = run_id
