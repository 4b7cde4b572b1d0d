"""Evaluation of checkpoints: responses to every benchmark, their verdicts, and metrics over them."""
