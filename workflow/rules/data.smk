# Problems to train on and to evaluate on.


rule train_problems:
    input:
        plan.source_model,
    output:
        plan.train_problems,
        plan.manifest("train"),
    log:
        plan.log("train_problems"),
    benchmark:
        plan.resources("train_problems")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
        settings=plan.settings["train_data"],
    shell:
        "balagg prepare-data {params.study} --name train 2>&1 | tee {log}"


rule benchmark_problems:
    input:
        plan.source_model,
    output:
        plan.benchmark("{benchmark}"),
        plan.manifest("{benchmark}"),
    log:
        plan.log("benchmark_problems/{benchmark}"),
    benchmark:
        plan.resources("benchmark_problems/{benchmark}")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
        settings=plan.benchmark_settings,
    shell:
        "balagg prepare-data {params.study} --name {wildcards.benchmark} 2>&1 | tee {log}"
