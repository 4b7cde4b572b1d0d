"""Statistics, tables and figures, from the two tidy tables of a study and nothing else."""
