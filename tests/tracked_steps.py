"""Steps of a training that did not take place."""

NAN = float("nan")


def step(number):
    """Rows of metrics.jsonl and timing.jsonl, as the trainer hands them over."""
    gap = NAN if number == 1 else -0.5  # there is none in the first step
    return (
        {"step": number, "reward": number / 10, "length_gap": gap, "positive_share/token": 0.3},
        {"step": number, "rollout_seconds": 2.0, "update_seconds": 1.0, "tokens_per_second": 5.0 * number},
    )
