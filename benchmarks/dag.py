"""How long Snakemake takes to plan a study of which nothing is there yet.

    python benchmarks/dag.py [--jobs N ...]

Prints for each size the jobs, the seconds that `snakemake -n --quiet` takes, by the clock and of the processor (which
does not count what else the machine does), and the jobs a second of the processor. The last column is for
`snakemake -n --quiet rules`, which also puts together the command of every job, to print none of them. Some seconds
are over before the first job: the package and Snakemake are imported.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
RULES, SEEDS, BENCHMARKS = 3, 5, 2


def study_of(jobs: int) -> dict[str, object]:
    """A study of about so many jobs: the default one with more seeds and more evaluated steps.

    Each evaluated checkpoint gives two jobs for each benchmark: its responses, and their verdicts.
    """
    study = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    study |= {"study": "planned", "seeds": list(range(SEEDS))}
    study["training"]["steps"] = -(-jobs // (RULES * SEEDS * BENCHMARKS * 2))
    study["evaluation"]["every"] = 1
    return study


def plan(folder: Path, *quiet: str) -> tuple[str, float, float]:
    """What a dry run prints, and its seconds: by the clock, and of the processor."""
    command = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "--dry-run"]
    command += ["--directory", str(folder), "--configfile", str(folder / "study.yaml"), "--quiet", *quiet]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if result.returncode:
        sys.exit(f"snakemake failed with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr, seconds, after - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 5000, 20000, 40000], help="about so many jobs")
    print(f"{'jobs':>7} {'seconds':>8} {'processor':>10} {'jobs/s':>7} {'with all commands':>18}")
    for size in parser.parse_args().jobs:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "study.yaml").write_text(yaml.safe_dump(study_of(size)), encoding="utf-8")
            _, seconds, used = plan(Path(folder))
            summary, _, with_commands = plan(Path(folder), "rules")
        jobs = int(re.search(r"^total\s+(\d+)$", summary, re.MULTILINE)[1])
        print(f"{jobs:7d} {seconds:8.1f} {used:10.1f} {jobs / used:7.0f} {with_commands:18.1f}", flush=True)


if __name__ == "__main__":
    main()
