# MLflow: its database exists before the first training starts, since concurrent first use breaks it.


rule track_start:
    output:
        plan.tracking,
    log:
        plan.log("track_start"),
    benchmark:
        plan.resources("track_start")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
        settings=plan.of("tracking_settings"),
    shell:
        "balagg track start {params.study} 2>&1 | tee {log}"


rule track_finish:
    input:
        plan.table_files,
        plan.tracked_paper_files,
        plan.figure_files,
        plan.results,
        plan.tracking,
    output:
        plan.tracked,
    log:
        plan.log("track_finish"),
    benchmark:
        plan.resources("track_finish")
    localrule: True
    conda:
        "../../envs/cpu.yaml"
    params:
        study=plan.study_argument,
        settings=plan.of("tracking_settings"),
    shell:
        "balagg track finish {params.study} 2>&1 | tee {log}"
