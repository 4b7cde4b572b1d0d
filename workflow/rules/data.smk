# Problems to train on and to evaluate on.


rule prepare_data:
    input:
        plan.source_model,
    output:
        plan.train_problems,
        plan.benchmarks,
        plan.data_manifest,
    log:
        plan.log("prepare_data"),
    benchmark:
        plan.resources("prepare_data")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
        settings=plan.settings["data"],
    shell:
        "balagg prepare-data {params.study} 2>&1 | tee {log}"
