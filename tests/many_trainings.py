"""Trainings that MLflow follows, each in a process of its own: `many_trainings.py JSON`.

The argument has ``place``, ``attempts`` (each with ``seed`` and ``kill``) and ``together``. Every process is forked
from this one, which has imported what it needs: to import it twenty times would take a minute. A process kills itself
by force after ``kill`` seconds, or before its ``kill``-th request of metrics if that is a string.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
from mlflow import MlflowClient

from balanced_aggregation.tracking import RunTracker, tracker
from balanced_aggregation.tracking.runs import Training
from tracked_steps import step

STEPS = 10


def train(place, seed, kill, start):
    tracker._EVERY_SECONDS = 0.05
    tracker._SETTLED_SECONDS = 0.5
    tracker._AT_THE_END_SECONDS = 60.0  # the machine may be slow
    start.wait()
    if isinstance(kill, float):
        threading.Timer(kill, os.kill, (os.getpid(), signal.SIGKILL)).start()
    if isinstance(kill, str):
        kill_before_request(int(kill))
    run = RunTracker(place, Training("token", seed, {"versions": {}}, {"training.steps": STEPS}, None))
    steps = [step(number) for number in range(1, STEPS + 1)]
    for rows in steps:
        run.on_step(*rows)
        time.sleep(0.05)
        while isinstance(kill, str) and run._waiting:  # a request for each step
            time.sleep(0.01)
    run.finish(steps)


def kill_before_request(number):
    log_batch = MlflowClient.log_batch
    requests = []

    def log(self, run_id, metrics=(), **others):
        requests.extend([run_id] if metrics else [])
        if len(requests) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return log_batch(self, run_id, metrics=metrics, **others)

    MlflowClient.log_batch = log


def main():
    order = json.loads(sys.argv[1])
    context = multiprocessing.get_context("fork")
    attempts = order["attempts"]
    start = context.Barrier(len(attempts) if order["together"] else 1)
    processes = [context.Process(target=train, args=(order["place"], a["seed"], a["kill"], start)) for a in attempts]
    for process in processes:
        process.start()
        if not order["together"]:
            process.join()
    for process in processes:
        process.join()
    print(json.dumps([process.exitcode for process in processes]))


if __name__ == "__main__":
    main()
