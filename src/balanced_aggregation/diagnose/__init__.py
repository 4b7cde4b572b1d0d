"""Diagnosis of rollouts that any trainer has written: what each aggregation rule would make of them."""
