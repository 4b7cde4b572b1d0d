"""Programs that a model wrote, run without danger to what runs them.

Each program gets a process of its own that may read the Python installation, write a few small files in a folder of
its own, start threads and compute; see `sandboxing` for how. On a machine that cannot enforce this, nothing runs.
"""

from balanced_aggregation.rewards.sandboxing.execution import Ending, Execution, Limits
from balanced_aggregation.rewards.sandboxing.parent import run_program
from balanced_aggregation.rewards.sandboxing.probes import check_sandbox

__all__ = ["Ending", "Execution", "Limits", "check_sandbox", "run_program"]
