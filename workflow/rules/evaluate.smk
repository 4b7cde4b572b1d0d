# Every checkpoint on every benchmark: responses are generated once, and scored from what is stored. Unfinished parts
# are in hidden folders that are not declared as output, so a job that is killed goes on where it stopped.
#
# `cpus_per_task` is what Slurm is asked for: `threads` are no more than this machine has, also of a job for a cluster.


rule generate:
    input:
        plan.of("model_of", "checkpoint"),
        plan.benchmark("{benchmark}"),
        plan.manifest("{benchmark}"),
    output:
        plan.any_responses,
    log:
        plan.log("generate/{checkpoint}/{benchmark}"),
    benchmark:
        plan.resources("generate/{checkpoint}/{benchmark}")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.of("threads")
    resources:
        cpus_per_task=plan.of("threads"),
        gpu=plan.of("evaluation_gpus"),
    params:
        study=plan.study_argument,
        settings=plan.of("response_settings", "benchmark"),
    shell:
        "balagg generate {params.study} --checkpoint {wildcards.checkpoint} --benchmark {wildcards.benchmark}"
        " 2>&1 | tee {log}"


rule score:
    input:
        plan.any_responses,
        plan.benchmark("{benchmark}"),
    output:
        plan.any_evaluation,
    log:
        plan.log("score/{checkpoint}/{benchmark}"),
    benchmark:
        plan.resources("score/{checkpoint}/{benchmark}")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.of("verifiers")
    resources:
        cpus_per_task=plan.of("verifiers"),
    params:
        study=plan.study_argument,
        settings=plan.verifier,
    shell:
        "balagg score {params.study} --checkpoint {wildcards.checkpoint} --benchmark {wildcards.benchmark}"
        " 2>&1 | tee {log}"


rule lighteval_environment:
    input:
        plan.lighteval_lock,
    output:
        plan.lighteval_ready,
    log:
        plan.lighteval_log,
    benchmark:
        plan.lighteval_resources
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        repository=plan.repository,
    shell:
        "make --directory {params.repository} lighteval 2>&1 | tee {log}"


rule lighteval:
    input:
        plan.any_responses,
        plan.benchmark("{benchmark}"),
        plan.lighteval_ready,
        code=plan.lighteval_code,
    output:
        plan.any_lighteval,
    log:
        plan.log("lighteval/{checkpoint}/{benchmark}"),
    benchmark:
        plan.resources("lighteval/{checkpoint}/{benchmark}")
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
    shell:
        "balagg lighteval {params.study} --checkpoint {wildcards.checkpoint} --benchmark {wildcards.benchmark}"
        " 2>&1 | tee {log}"


rule collect:
    input:
        plan.of("evaluated"),
        plan.of("scored_by_lighteval"),
        plan.of("problem_files"),
        plan.of("finished_runs"),
    output:
        plan.results,
        plan.problem_results,
        plan.training_metrics,
        plan.disagreement_files,
    log:
        plan.log("collect"),
    benchmark:
        plan.resources("collect")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
        settings=plan.of("metric_settings"),
        code=plan.metric_code,
    shell:
        "balagg collect {params.study} 2>&1 | tee {log}"
