# The model that all trainings start from.


rule source_model:
    output:
        directory(plan.source_model),
    log:
        plan.log("source_model"),
    benchmark:
        plan.resources("source_model")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
        settings=plan.of("model_settings"),
    shell:
        "balagg source-model {params.study} 2>&1 | tee {log}"


rule warm_start:
    input:
        plan.source_model,
        plan.train_problems,
    output:
        directory(plan.warm_model),
    log:
        plan.log("warm_start"),
    benchmark:
        plan.resources("warm_start")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.of("threads")
    resources:
        cpus_per_task=plan.of("threads"),  # as in evaluate.smk
    params:
        study=plan.study_argument,
        settings=plan.of("initial_model_settings"),
    shell:
        "balagg warm-start {params.study} 2>&1 | tee {log}"
