# One training for each rule and seed. Its checkpoints are in folders that are not declared as output, because
# Snakemake removes outputs before a job runs again and a killed training goes on from its checkpoint.
#
# Slurm sends its signals to every process of a job: bash and tee leave them to the training, and wait for it. The exit
# code is the training's, whatever becomes of its log.


rule train:
    input:
        plan.of("initial_model"),
        plan.train_problems,
        plan.manifest("train"),
        ancient(plan.tracking),
        rule_files=plan.of("rule_files", "aggregation"),
    output:
        plan.any_run / "run.json",
        plan.any_run / "metrics.jsonl",
        plan.any_run / "timing.jsonl",
    log:
        plan.log("train/{aggregation}/seed{seed}"),
    benchmark:
        plan.resources("train/{aggregation}/seed{seed}")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.of("training_threads")
    resources:
        cpus_per_task=plan.of("training_threads"),  # as in evaluate.smk
        nodes=plan.cluster("nodes"),
        gpu=plan.cluster("gpu"),
        mpi=plan.cluster("mpi"),
        tasks=plan.cluster("tasks"),
        tasks_per_gpu=plan.cluster("tasks_per_gpu"),
        mem_mb=plan.training_mem_mb,
    params:
        study=plan.study_argument,
        settings=plan.of("training_settings", "aggregation"),
        launcher=plan.launcher,
    shell:
        "trap : TERM USR1; "
        "{params.launcher}balagg train {params.study} --rule {wildcards.aggregation} --seed {wildcards.seed}"
        " 2>&1 | (trap '' TERM USR1; exec tee {log}) || exit ${{PIPESTATUS[0]}}"
