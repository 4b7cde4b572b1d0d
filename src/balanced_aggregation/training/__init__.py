"""The GRPO trainer. It writes files and reports to observers; it knows nothing of Snakemake or MLflow."""
