# Tables and figures, from the Parquet files of results and nothing else. The code that makes them is an input of
# these rules and of no others: a change of it draws anew and trains nothing.


rule tables:
    input:
        plan.all_tables,
    localrule: True


rule figures:
    input:
        plan.all_figures,
    localrule: True


rule tabulate:
    input:
        plan.results,
        plan.problem_results,
        plan.training_metrics,
        code=plan.table_code,
    output:
        plan.table_files,
    log:
        plan.log("tabulate"),
    benchmark:
        plan.resources("tabulate")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
    shell:
        "balagg tables {params.study} 2>&1 | tee {log}"


rule paper_table:
    input:
        plan.all_problem_results,
        code=plan.table_code,
    output:
        plan.paper_files,
    log:
        plan.paper_log,
    benchmark:
        plan.paper_resources
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        studies=plan.all_studies,
    shell:
        "balagg paper-table {params.studies} 2>&1 | tee {log}"


rule draw:
    input:
        plan.results,
        plan.problem_results,
        plan.training_metrics,
        code=plan.figure_code,
    output:
        plan.figure_files,
    log:
        plan.log("draw"),
    benchmark:
        plan.resources("draw")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
    shell:
        "balagg figures {params.study} 2>&1 | tee {log}"
