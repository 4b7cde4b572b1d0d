# MLflow: its database exists before the first training starts, since concurrent first use breaks it.


rule track_start:
    output:
        plan.tracking,
    params:
        study=plan.study_file,
    log:
        plan.log("track_start"),
    benchmark:
        plan.resources("track_start")
    conda:
        "../../envs/cpu.yaml"
    localrule: True
    shell:
        "balagg track-start {params.study} 2>&1 | tee {log}"


rule track_finish:
    input:
        plan.table_files,
        plan.figure_files,
        plan.results,
        ancient(plan.tracking),
    output:
        plan.tracked,
    params:
        study=plan.study_file,
    log:
        plan.log("track_finish"),
    benchmark:
        plan.resources("track_finish")
    conda:
        "../../envs/cpu.yaml"
    localrule: True
    shell:
        "balagg track-finish {params.study} 2>&1 | tee {log}"
