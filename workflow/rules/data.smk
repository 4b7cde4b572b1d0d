# Problems to train on and to evaluate on.


rule statements:
    input:
        plan.of("local_copy", "dataset"),
    output:
        plan.statements("{dataset}"),
        plan.statements_manifest("{dataset}"),
    log:
        plan.log("statements/{dataset}"),
    benchmark:
        plan.resources("statements/{dataset}")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    threads: plan.of("verifiers")
    params:
        study=plan.study_argument,
        settings=plan.of("statements_settings", "dataset"),
    shell:
        "balagg prepare-statements {params.study} --name {wildcards.dataset} 2>&1 | tee {log}"


rule contamination:
    input:
        plan.of("statements_compared"),
    output:
        plan.contamination,
        plan.contamination_counts,
        plan.contamination_table,
    log:
        plan.log("contamination"),
    benchmark:
        plan.resources("contamination")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
        settings=plan.of("contamination_settings"),
    shell:
        "balagg contamination {params.study} 2>&1 | tee {log}"


rule train_problems:
    input:
        plan.source_model,
        plan.statements("train"),
        plan.of("removed_from_training"),
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
        study=plan.study_argument,
        settings=plan.of("train_problem_settings"),
    shell:
        "balagg prepare-problems {params.study} --name train 2>&1 | tee {log}"


rule benchmark_problems:
    input:
        plan.source_model,
        plan.statements("{benchmark}"),
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
        study=plan.study_argument,
        settings=plan.of("problem_settings", "benchmark"),
    shell:
        "balagg prepare-problems {params.study} --name {wildcards.benchmark} 2>&1 | tee {log}"
