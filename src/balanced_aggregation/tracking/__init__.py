"""MLflow as a mirror of the files under results/. It can be away at any time; then a warning is all that happens.

What it shows can be made from the files alone, so nothing that it missed is lost. Nothing here imports torch.
"""

from balanced_aggregation.tracking.study import (
    finish_tracking,
    rebuild_tracking,
    start_tracking,
    stop_tracking,
)
from balanced_aggregation.tracking.tracker import RunTracker, follow_training

__all__ = [
    "RunTracker",
    "finish_tracking",
    "follow_training",
    "rebuild_tracking",
    "start_tracking",
    "stop_tracking",
]
