# Every checkpoint on every benchmark.


rule evaluate:
    input:
        plan.any_run / "run.json",
        plan.benchmarks,
    output:
        plan.any_evaluation,
    log:
        plan.log("evaluate/{aggregation}/seed{seed}/step{step}"),
    benchmark:
        plan.resources("evaluate/{aggregation}/seed{seed}/step{step}")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.study.threads
    params:
        study=plan.study_file,
        settings=plan.settings["evaluation"],
    shell:
        "balagg evaluate {params.study} --rule {wildcards.aggregation} --seed {wildcards.seed}"
        " --step {wildcards.step} 2>&1 | tee {log}"


rule evaluate_base:
    input:
        plan.initial_model,
        plan.benchmarks,
    output:
        plan.base_evaluation(),
    log:
        plan.log("evaluate/base"),
    benchmark:
        plan.resources("evaluate/base")
    conda:
        "../../envs/cpu.yaml"
    threads: plan.study.threads
    params:
        study=plan.study_file,
        settings=plan.settings["evaluation"],
    shell:
        "balagg evaluate-base {params.study} 2>&1 | tee {log}"


rule collect:
    input:
        plan.base_evaluation(),
        plan.manifests,
        expand(
            [plan.any_run / "run.json", plan.any_run / "metrics.jsonl"],
            aggregation=plan.rules,
            seed=plan.study.seeds,
        ),
        expand(
            plan.any_evaluation,
            aggregation=plan.rules,
            seed=plan.study.seeds,
            step=plan.study.evaluated_steps,
        ),
        code=plan.metric_code,
    output:
        plan.results,
        plan.training_metrics,
    log:
        plan.log("collect"),
    benchmark:
        plan.resources("collect")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
        settings=plan.settings["metrics"],
    shell:
        "balagg collect {params.study} 2>&1 | tee {log}"
