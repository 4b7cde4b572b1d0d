"""How should token-level policy-gradient terms be aggregated within a GRPO group? A reproducible comparison."""
