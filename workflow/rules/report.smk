# Tables and figures, from the two Parquet files of results and nothing else. The code that makes them is an input of
# these rules and of no others: a change of it draws anew and trains nothing.


rule tables:
    input:
        plan.results,
        plan.training_metrics,
        code=plan.table_code,
    output:
        plan.table_files,
    log:
        plan.log("tables"),
    benchmark:
        plan.resources("tables")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
    shell:
        "balagg tables {params.study} 2>&1 | tee {log}"


rule figures:
    input:
        plan.results,
        plan.training_metrics,
        code=plan.figure_code,
    output:
        plan.figure_files,
    log:
        plan.log("figures"),
    benchmark:
        plan.resources("figures")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_file,
    shell:
        "balagg figures {params.study} 2>&1 | tee {log}"
