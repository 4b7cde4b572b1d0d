import fcntl
import os
import shutil

import pytest
from box import Box
from cluster_study import Clone


@pytest.fixture(scope="session")
def box(tmp_path_factory):
    cluster = Box(tmp_path_factory.mktemp("slurm") / "box")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, box):
    """The study, run through on this machine without a cluster; once for all processes that test."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "undisturbed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = shared / "undisturbed.done"
        clone = Clone(shared / "undisturbed", box)
        if not done.exists():
            clone.finish(clone.start(profile=False))
            done.touch()
    return clone


@pytest.fixture
def clone(tmp_path, box, undisturbed):
    """The same study on the cluster, where one training, and what follows from it, is still to be done."""
    folder = tmp_path / "clone"
    shutil.copytree(undisturbed.folder, folder)
    for made in ("runs/paced", "responses/paced", "evaluations/paced", "tables", "figures", "results.parquet"):
        path = folder / "results/t" / made
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "output.log").unlink()
    clone = Clone(folder, box)
    yield clone
    clone.close()


@pytest.fixture
def same_as_undisturbed(undisturbed, clone):
    """To be called at the end: whatever has happened, the results are those of an undisturbed run, byte by byte."""

    def check():
        expected, found = undisturbed.results(), clone.results()
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []
        assert any(name.startswith("tables/main") for name in expected)

    return check
