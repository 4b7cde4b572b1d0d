"""How far a study is, from its files and from Slurm: nothing is written, locked or waited for."""
