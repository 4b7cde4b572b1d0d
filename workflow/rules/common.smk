from balanced_aggregation.workflow import Plan

plan = Plan(config, workflow.configfiles)


wildcard_constraints:
    study=plan.study_pattern,
    aggregation="|".join(plan.rules),
    benchmark="|".join(plan.benchmark_names),
    checkpoint=plan.checkpoint_pattern,
    dataset="|".join(plan.datasets),
    seed=r"\d+",


onstart:
    plan.end_leftovers(workflow.dag.needrun_jobs(), submits=not workflow.local_exec)
    plan.write_studies()


onerror:
    plan.stop_tracking()
