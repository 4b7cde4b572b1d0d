"""Stages that run on every rule, seed and checkpoint: each put together from the parts of the package."""
