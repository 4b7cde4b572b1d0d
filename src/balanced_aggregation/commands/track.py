"""The commands `balagg track ...`: MLflow before, after and beside the workflow."""

from pathlib import Path
from typing import Annotated

import tyro

from balanced_aggregation.commands.arguments import StudyFile
from balanced_aggregation.layout import Layout
from balanced_aggregation.study_file import load_studies, load_study

track = tyro.extras.SubcommandApp()


@track.command
def serve(
    folder: Annotated[
        Path, tyro.conf.arg(help="Of database and artifacts; on a disk of this machine, not a network file system.")
    ] = Path("mlflow-server"),
    host: Annotated[
        str, tyro.conf.arg(help="Address to listen at; 0.0.0.0 lets other machines in, and whoever is on them.")
    ] = "127.0.0.1",
    port: Annotated[int, tyro.conf.arg(help="Port to listen at.")] = 5000,
    database: Annotated[
        str | None, tyro.conf.arg(help="Another database than SQLite in the folder: postgresql://user@host/name.")
    ] = None,
    workers: Annotated[int, tyro.conf.arg(help="Processes that answer.")] = 4,
) -> None:
    """Run a tracking server, and print the line that makes studies use it; ends on Ctrl-C or SIGTERM."""
    from balanced_aggregation.tracking.server import serve as run

    run(folder, host, port, database, workers)


@track.command
def start(study: StudyFile) -> None:
    """Create MLflow's database, the experiment and the parent run; once more: write a server's new address."""
    from balanced_aggregation.tracking import start_tracking

    loaded = load_study(study)
    start_tracking(loaded, Layout(loaded))


@track.command
def finish(study: StudyFile) -> None:
    """Hand evaluations, tables and figures to MLflow, and what it has missed of the trainings."""
    from balanced_aggregation.tracking import finish_tracking

    loaded = load_study(study)
    finish_tracking(loaded, Layout(loaded))


@track.command
def stop(study: StudyFile) -> None:
    """Mark what MLflow shows as running though the workflow has ended; all variants of the study."""
    from balanced_aggregation.tracking import stop_tracking

    for loaded in load_studies(study):
        stop_tracking(loaded, Layout(loaded))


@track.command
def rebuild(
    study: StudyFile,
    uri: Annotated[
        str | None, tyro.conf.arg(help="Where to, instead of where the study is tracked: a server, or sqlite:///PATH.")
    ] = None,
) -> None:
    """Make the study's experiment in MLflow from the files under results/, or complete it; all variants."""
    from balanced_aggregation.tracking import rebuild_tracking

    for loaded in load_studies(study):
        place = rebuild_tracking(loaded, Layout(loaded), uri)
        print(f"{loaded.full_name}: experiment {place['experiment_id']} in {place['uri']}")
