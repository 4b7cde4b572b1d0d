import os
import sys
from pathlib import Path

from balanced_aggregation.workflow import Plan

plan = Plan(config, workflow.configfiles)


wildcard_constraints:
    aggregation="|".join(plan.rules),
    seed=r"\d+",
    step=r"\d+",


# Commands are found beside Python, also where the environment has not been activated.
os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)


onstart:
    plan.write_study()
