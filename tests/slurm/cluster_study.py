"""A study of two trainings on a cluster, and what a person does with it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from box import Box, wait_for

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SMOKE = yaml.safe_load((ROOT / "studies" / "smoke.yaml").read_text())
STUDY = SMOKE | {
    "study": "t",
    "rules": [{"rule": "paced.py:token", "name": "paced"}, "balanced"],
    "seeds": [0],
    "tracking": {"enabled": False},
}
PROFILE = yaml.safe_load((ROOT / "slurm" / "profile.yaml").read_text())
# But for waiting: this Slurm forgets nothing, and its nodes share one disk.
PROFILE |= {"slurm-init-seconds-before-status-checks": 2, "max-status-checks-per-second": 1, "latency-wait": 5}


class Clone:
    """A working directory with a study in it, and Snakemake runs on a cluster."""

    def __init__(self, folder: Path, box: Box, study: dict | None = None):
        self.folder, self.box = folder, box
        folder.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).with_name("paced.py"), folder)
        self.write_study(study or STUDY)
        self.write_profile()
        self.run_folder = folder / "results/t/runs/paced/seed0"
        self._started: list[subprocess.Popen] = []

    def write_study(self, study: dict) -> None:
        (self.folder / "study.yaml").write_text(yaml.safe_dump(study))

    def write_profile(self, **train: object) -> None:
        """The project's profile, with other resources of trainings."""
        resources = PROFILE["set-resources"]
        profile = PROFILE | {"set-resources": resources | {"train": resources["train"] | train}}
        (self.folder / "profile").mkdir(exist_ok=True)
        (self.folder / "profile/profile.yaml").write_text(yaml.safe_dump(profile))

    def start(self, *arguments: str, profile: bool = True) -> subprocess.Popen:
        """Snakemake, in the background; its output goes to ``output.log``, after what is there."""
        command = [BIN / "snakemake", *arguments, "--directory", self.folder, "--snakefile", ROOT / "Snakefile"]
        command += [
            *(["--profile", self.folder / "profile"] if profile else ["--cores", "2"]),
            "--configfile",
            self.folder / "study.yaml",
        ]
        environment = self.box.environment | {"OMP_NUM_THREADS": "1"}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        with (self.folder / "output.log").open("a") as output:
            process = subprocess.Popen(
                list(map(str, command)), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen, seconds: float = 900) -> str:
        """Wait until Snakemake has succeeded; its output."""
        assert process.wait(seconds) == 0, self.output()
        return self.output()

    def output(self) -> str:
        return (self.folder / "output.log").read_text()

    def close(self) -> None:
        for name in ("hold", "hold_checkpoint"):
            (self.folder / name).unlink(missing_ok=True)
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.box.cancel_all()

    def hold(self, steps: int) -> None:
        """Let the training stand still after so many steps."""
        journal = (self.run_folder / "state/metrics.jsonl").relative_to(self.folder)
        _replace(self.folder / "hold", f"{journal} {steps}")

    def go_on(self) -> None:
        (self.folder / "hold").unlink()

    def steps(self) -> int:
        journal = self.run_folder / "state/metrics.jsonl"
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def checkpoint(self) -> int:
        """Step of the newest checkpoint to resume from."""
        return max((int(p.name.removeprefix("step_")) for p in self.run_folder.glob("state/resume/step_*")), default=0)

    def wait_for_steps(self, steps: int) -> str:
        """Until a training has done so many; the number of its job."""
        wait_for(lambda: self.steps() >= steps, 240, lambda: f"{self.steps()} of {steps} steps:\n{self.output()}")
        return self.running_job()

    def jobs(self) -> dict[str, str]:
        """States of all jobs that the training has had, by their numbers."""
        return self.box.jobs("train", self.folder)

    def running_job(self) -> str:
        """The number of the training's job."""
        (running,) = [number for number, state in self.jobs().items() if state == "RUNNING"]
        return running

    def log(self) -> str:
        """What the training has printed."""
        path = self.folder / "results/t/logs/train/paced/seed0.log"
        return path.read_text() if path.exists() else ""

    def attempt(self) -> dict:
        return json.loads((self.run_folder / "attempt.json").read_text())

    def wait_for_attempt(self, **expected: object) -> dict:
        """Until the record of the training's latest attempt has these values."""

        def there() -> bool:
            try:
                attempt = self.attempt()
            except (FileNotFoundError, ValueError):
                return False
            return all(attempt[name] == value for name, value in expected.items())

        wait_for(there, 180, lambda: f"{self.output()}")
        return self.attempt()

    def results(self) -> dict[str, bytes]:
        """What must be the same, whatever happened on the way."""
        results = self.folder / "results/t"
        patterns = (
            "tables/*",
            "figures/*",
            "runs/*/*/metrics.jsonl",
            "runs/*/*/run.json",
            "*.parquet",
            "evaluations/**/*.parquet",
        )
        files = [path for pattern in patterns for path in results.glob(pattern)]
        files += results.glob("runs/*/*/checkpoints/*/model.safetensors")
        return {path.relative_to(results).as_posix(): path.read_bytes() for path in files}


def _replace(path: Path, text: str) -> None:
    path.with_name(path.name + ".new").write_text(text)
    path.with_name(path.name + ".new").replace(path)
