#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the working directory, which is the repository.
set -euo pipefail
python -m pip install --no-deps --no-build-isolation --editable .
