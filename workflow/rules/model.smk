# The model that all trainings start from.


rule source_model:
    output:
        directory(plan.source_model),
    params:
        study=plan.study_file,
        settings=plan.settings["model"],
    log:
        plan.log("source_model"),
    benchmark:
        plan.resources("source_model")
    conda:
        "../../envs/cpu.yaml"
    localrule: True
    shell:
        "balagg source-model {params.study} 2>&1 | tee {log}"


rule warm_start:
    input:
        plan.source_model,
        plan.train_problems,
    output:
        directory(plan.warm_model),
    params:
        study=plan.study_file,
        settings=plan.settings["initial_model"],
    log:
        plan.log("warm_start"),
    benchmark:
        plan.resources("warm_start")
    threads: plan.study.threads
    conda:
        "../../envs/cpu.yaml"
    shell:
        "balagg warm-start {params.study} 2>&1 | tee {log}"
