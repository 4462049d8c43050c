"""Sweeps on real workers of Dask: the same rows, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import midspan as ms
import pytest

distributed = pytest.importorskip("distributed")


def sweep():
    return ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:10"}, repetitions=10)


def rows(table):
    columns = table.to_dict()
    del columns["commit"]
    return list(zip(*columns.values()))


@pytest.fixture
def cluster():
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


def merged(store, to):
    ms.merge([store], to)
    return to.read_bytes()


def test_workers_give_the_same_bytes_as_threads(tmp_path, cluster):
    serial = tmp_path / "serial"
    expected = rows(sweep().run(store=serial, threads=1))
    folder = tmp_path / "folder"
    folder.mkdir()
    with distributed.Client(cluster) as client:
        assert rows(sweep().run(executor=client)) == expected
        assert rows(sweep().run(executor=client, store=folder)) == expected
    assert merged(serial, tmp_path / "one") == merged(folder, tmp_path / "two")


def test_a_killed_worker_is_replaced_within_the_same_call(tmp_path, cluster):
    expected = rows(sweep().run())
    folder = tmp_path / "folder"
    folder.mkdir()
    killed = []

    with distributed.Client(cluster) as client:
        workers = client.run(os.getpid)

        def kill_one(done, total):
            if not killed and done < total:
                victim = next(iter(workers.values()))
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

        assert rows(sweep().run(executor=client, store=folder, progress=kill_one)) == expected
    assert killed


CLIENT = """
import sys
import distributed
import midspan as ms

def main():
    address, folder = sys.argv[1:]
    sweep = ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:10"}, repetitions=10)
    with distributed.Client(address) as client:
        sweep.run(executor=client, store=folder, progress=lambda done, total: print(done, flush=True))

main()
"""


def begin(address, folder):
    """Begins the sweep in a process of its own; returns that process when a first batch is there."""
    client = subprocess.Popen([sys.executable, "-c", CLIENT, address, str(folder)], stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline()
    return client


def wait_until_nothing_is_added(folder):
    """Workers finish the batches that they have begun."""
    before = None
    while (now := len(list(folder.glob("*.json")))) != before:
        before = now
        time.sleep(3)


def assert_the_second_call_makes_only_the_missing_runs(folder, client):
    stored = {file: file.stat().st_mtime_ns for file in folder.glob("*.json")}
    missing = len(sweep().missing(folder))
    assert len(stored) + missing == 200
    counted = []
    table = sweep().run(executor=client, store=folder, progress=lambda done, total: counted.append((done, total)))
    assert rows(table) == rows(sweep().run())
    if missing:
        assert counted[-1] == (missing, missing)
    # No stored run was made again: its file is the old one.
    assert all(file.stat().st_mtime_ns == time_of for file, time_of in stored.items())


def test_a_second_call_after_a_killed_client_makes_only_the_missing_runs(tmp_path, cluster):
    first = begin(cluster.scheduler_address, tmp_path)
    first.kill()
    first.wait()
    wait_until_nothing_is_added(tmp_path)
    with distributed.Client(cluster) as client:
        assert_the_second_call_makes_only_the_missing_runs(tmp_path, client)


def test_a_second_call_after_a_killed_scheduler_makes_only_the_missing_runs(tmp_path, cluster):
    file = tmp_path / "scheduler.json"
    folder = tmp_path / "runs"
    folder.mkdir()
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *options])
    worker = subprocess.Popen([*dask, "worker", "--nworkers", "3", "--nthreads", "1", "--death-timeout", "5", *options])
    try:
        limit = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < limit, "no scheduler after 60 s"
            time.sleep(0.1)
        first = begin(json.loads(file.read_text())["address"], folder)
        scheduler.kill()
        # The first call ends with an error; it does not wait for ever.
        assert first.wait(timeout=120) != 0
        worker.wait(timeout=120)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    wait_until_nothing_is_added(folder)
    with distributed.Client(cluster) as client:
        assert_the_second_call_makes_only_the_missing_runs(folder, client)
