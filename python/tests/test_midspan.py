"""The package as users have it: installed from its wheel."""

import csv
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import midspan as ms
import pytest

SMALL = """
[[host]]
name = "client"
[[host]]
name = "server"
[[link]]
name = "wire"
between = ["client", "server"]
rate = "10 Mbit/s"
delay = "20 ms"
[[flow]]
name = "file"
from = "client"
to = "server"
workload = "download"
size = "100 KB"
"""


def small():
    return ms.Path.from_toml(SMALL, "small")


def sweep(repetitions=3):
    return ms.Sweep(small(), over={"link.wire.loss": ["0 %", 0.01], "link.wire.delay": "10 ms..30 ms:2"}, repetitions=repetitions)


def rows(table):
    """Everything but the commit, as a list of tuples."""
    columns = table.to_dict()
    del columns["commit"]
    return list(zip(*columns.values()))


def test_paths_are_read_set_and_compared():
    assert "geo" in ms.built_in_paths()
    geo = ms.Path("geo")
    lossy = geo.set({"link.satellite.loss": 0.01, "seed": 9})
    assert (geo.name, lossy.seed) == ("geo", 9) and "1 MB" in geo.flows
    assert lossy != geo and lossy == geo.set({"link.satellite.loss": "1 %", "seed": 9})
    again = ms.Path.from_toml(lossy.to_toml(), "geo")
    assert again.to_toml() == lossy.to_toml()
    assert pickle.loads(pickle.dumps(lossy)) == lossy


def test_errors_have_the_place_and_the_remedy(tmp_path):
    wrong = SMALL.replace('rate = "10 Mbit/s"', 'rat = "10 Mbit/s"')
    with pytest.raises(ms.PathError) as caught:
        ms.Path.from_toml(wrong, "small")
    error = caught.value
    assert (error.line, error.column) == (9, 1) and "rate" in str(error)
    assert str(error).startswith("small.toml:9:1: ")
    again = pickle.loads(pickle.dumps(error))
    assert (again.line, str(again)) == (9, str(error))
    for wrong in [{"link.wire.loss": "5 Mbit/s"}, {"link.wier.loss": 0.1}, {"": 1}, {"link.wire.loss": 7}]:
        with pytest.raises(ms.PathError):
            small().set(wrong)
    with pytest.raises(ValueError, match="text"):
        small().set({"link.wire.loss": object()})
    with pytest.raises(ValueError, match="did you mean"):
        ms.Path("geoo")
    with pytest.raises(OSError):
        ms.Path(str(tmp_path / "missing.toml"))
    with pytest.raises(ms.PathError):
        ms.Sweep(small(), over={"link.wire.los": [0.1]})
    with pytest.raises(ValueError, match="flow"):
        ms.Sweep(small(), flows=["fil"])


def test_plan_has_text_numbers_and_a_configuration():
    plan = ms.plan(ms.Path("geo"))
    assert "1 MB" in plan.text or "proxy" in plan.text
    table = plan.table()
    assert len(table) > 10 and table.column_names == ["case", "quantity", "unit", "value"]
    assert "[[listener]]" in plan.configuration("gateway")
    with pytest.raises(ValueError, match="gateway"):
        plan.configuration("nowhere")


def test_a_simulation_is_the_same_every_time():
    one, two = ms.sim("geo-clean", flows=["1 MB"]), ms.sim("geo-clean", flows=["1 MB"])
    assert rows(one) == rows(two) and len(one) == 8
    times = {row["case"]: row["value"] for row in records(one) if row["quantity"] == "completion time"}
    assert 0 < times["midspan"] < times["direct"]


def records(table):
    columns = table.to_dict()
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def test_other_libraries_read_tables():
    import duckdb
    import polars
    import pyarrow

    runs = sweep().run()
    assert runs.column_names[:4] == ["link.wire.loss", "link.wire.delay", "link.wire.loss (share)", "link.wire.delay (s)"]
    frame = ms.to_pandas(runs)
    assert frame["link.wire.delay (s)"].unique().tolist() == [0.01, 0.03]
    assert frame["seed"].tolist() == pyarrow.table(runs)["seed"].to_pylist()
    assert ms.to_polars(runs).height == len(runs) == polars.DataFrame(runs).height
    ((count, mean),) = duckdb.sql("select count(*), avg(value) from runs where quantity = 'completion time'").fetchall()
    times = frame[frame["quantity"] == "completion time"]["value"]
    assert count == len(times) == 12 and math.isclose(mean, times.mean())
    del runs
    assert frame["value"].notna().all()


def test_tables_become_parquet_files(tmp_path):
    import duckdb
    import pyarrow.parquet

    runs = sweep().run()
    ms.to_pandas(runs).to_parquet(tmp_path / "pandas")
    ms.to_polars(runs).write_parquet(tmp_path / "polars")
    pyarrow.parquet.write_table(pyarrow.table(runs), tmp_path / "pyarrow")
    duckdb.sql(f"copy (select * from runs) to '{tmp_path}/duckdb' (format parquet)")
    for name in ["pandas", "polars", "pyarrow", "duckdb"]:
        read = pyarrow.parquet.read_table(tmp_path / name)
        assert read.column_names == runs.column_names, name
        # Every run with its seed, and the swept values as numbers in SI units, without rounding.
        assert read.to_pydict() == runs.to_dict(), name
        for column in ["link.wire.loss (share)", "link.wire.delay (s)", "value"]:
            assert read.schema.field(column).type == pyarrow.float64(), (name, column)
        assert pyarrow.types.is_integer(read.schema.field("seed").type), name


def test_a_flow_that_never_finishes_is_a_row_with_its_reason():
    outage = 'delay = "20 ms"\nschedule = { steps = [{ at = "60 ms", loss = "100 %" }] }'
    path = ms.Path.from_toml(SMALL.replace('delay = "20 ms"', outage))
    (row,) = records(ms.sim(path))
    assert row["status"] == "failed" and row["value"] is None and "can never finish" in row["reason"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_store_continues_and_parts_merge(tmp_path, kind):
    store = tmp_path / "runs"
    if kind == "folder":
        store.mkdir()
    reported = []
    all_rows = rows(sweep().run(progress=lambda done, total: reported.append((done, total))))
    assert reported[-1] == (12, 12)
    sweep(repetitions=1).run(store=store)
    assert len(sweep().missing(store)) == 8
    assert rows(sweep().run(store=store)) == all_rows
    assert sweep().missing(store) == []
    merged = tmp_path / "merged"
    assert ms.merge([store], merged) == 12
    assert rows(sweep().run(store=merged)) == all_rows
    with pytest.raises(OSError, match="exists"):
        ms.merge([store], merged)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_parts_merge_to_the_bytes_of_the_whole(tmp_path, kind):
    parts = [tmp_path / f"part-{number}" for number in range(3)]
    for number, part in enumerate(parts):
        if kind == "folder":
            part.mkdir()
        reported = []
        made = sweep().run_shard(f"{number}/3", part, progress=lambda done, total: reported.append((done, total)))
        assert made == 4 and reported[-1] == (4, 4)
        assert sweep().run_shard(f"{number}/3", part) == 0
    sweep().run(store=tmp_path / "whole")
    assert ms.merge(parts, tmp_path / "merged") == 12
    ms.merge([tmp_path / "whole"], tmp_path / "sorted")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "sorted").read_bytes()
    assert sweep().missing(tmp_path / "merged") == []
    for wrong in ["3/3", "0", "-1/3", ""]:
        with pytest.raises(ValueError, match="0/4"):
            sweep().run_shard(wrong, tmp_path / "merged")


WORKER = """
import pickle
import sys
import midspan as ms
from midspan._sweep import _make
sweep = ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:10"}, repetitions=50)
_make(pickle.dumps(sweep), range(1000), sys.argv[1])
"""


def test_a_killed_worker_loses_only_the_runs_that_have_not_ended(tmp_path):
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    limit = time.monotonic() + 60
    while not list(tmp_path.glob("*.json")):
        assert worker.poll() is None and time.monotonic() < limit
        time.sleep(0.001)
    worker.kill()
    worker.wait()
    stored = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    assert 0 < len(stored) < 1000
    # Another worker gets the same batch.
    long = ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:10"}, repetitions=50)
    assert long._runs.write(set(range(1000)), str(tmp_path)) == 1000 - len(stored)
    assert all(file.stat().st_mtime_ns == time_of for file, time_of in stored.items())
    with pytest.raises(OSError, match="missing"):
        long._runs.write({0}, str(tmp_path / "missing"))


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(3), lambda: ProcessPoolExecutor(2)])
@pytest.mark.parametrize("kind", [None, "file", "folder"])
def test_executors_give_the_same_rows_and_stores(tmp_path, make, kind):
    expected = rows(sweep().run(store=tmp_path / "serial"))
    store = tmp_path / "runs" if kind else None
    if kind == "folder":
        store.mkdir()
    with make() as executor:
        assert rows(sweep().run(store=store, executor=executor)) == expected
    if kind:
        assert sweep().missing(store) == []
        ms.merge([tmp_path / "serial"], tmp_path / "one")
        ms.merge([store], tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_other_threads_run_meanwhile():
    counted = 0
    running = True

    def count():
        nonlocal counted
        while running:
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    long = ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:20"}, repetitions=20)
    began = time.monotonic()
    long.run(threads=1)
    took = time.monotonic() - began
    running = False
    thread.join()
    # With the lock of the interpreter held, the thread would not have run at all.
    assert counted > took * 50, (counted, took)


def test_ctrl_c_ends_a_sweep_and_keeps_its_runs(tmp_path):
    store = tmp_path / "runs"
    script = f"""
import midspan as ms
sweep = ms.Sweep("dsl", over={{"link.line.loss": "0.1 %..1 %:100"}}, repetitions=1000)
sweep.run(store={str(store)!r}, progress=lambda done, total: print(done, flush=True))
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline()
    child.send_signal(2)
    _, errors = child.communicate(timeout=60)
    assert child.returncode != 0 and "KeyboardInterrupt" in errors
    assert store.stat().st_size > 0


def test_a_report_that_fails_ends_the_sweep():
    def fail(done, total):
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        sweep().run(progress=fail)


PROGRAM = os.environ.get("MIDSPAN_PROGRAM", "midspan")


def test_the_program_and_the_package_share_stores(tmp_path):
    file, by_program, here, both = (tmp_path / name for name in ["small.toml", "program", "here", "both"])
    file.write_text(SMALL)
    swept = ["--sweep", "link.wire.loss=0 %,0.01", "--sweep", "link.wire.delay=10 ms..30 ms:2", "--repetitions", "3"]
    command = [PROGRAM, "sim", str(file), *swept, "--state"]
    subprocess.run([*command, str(by_program), "--shard", "0/2"], check=True)
    assert sweep().run_shard("1/2", here) == 6
    assert ms.merge([by_program, here], both) == 12
    assert sweep().missing(both) == []
    table = sweep().run(store=both)
    printed = subprocess.run([*command, str(both), "--csv", "--each-run"], check=True, stdout=subprocess.PIPE, text=True)
    lines = list(csv.DictReader(printed.stdout.splitlines()))
    assert list(lines[0]) == table.column_names
    assert [float(line["value"]) for line in lines] == table.to_dict()["value"]
    assert [line["commit"] for line in lines] == table.to_dict()["commit"]


def test_papers_are_reproduced_by_the_program():
    found = ms.reproduce("bhole", "table 3", quick=True, program=PROGRAM)
    assert found and all("quantity" in record for record in found)
    with pytest.raises(ms.ProgramError, match="figure"):
        ms.reproduce("bhole", "figure 99", program=PROGRAM)
    with pytest.raises(ms.ProgramError, match="install"):
        ms.reproduce("bhole", program="/nowhere/midspan")


def test_the_lab_measures_by_the_program():
    try:
        found = ms.lab(small(), cases=["direct"], program=PROGRAM)
    except ms.ProgramError as error:
        if "namespace" not in str(error):
            raise
        pytest.skip(f"no network namespaces: {error}")
    times = [record["value"] for record in found if record["quantity"] == "completion time"]
    # 100 KB at 10 Mbit/s take 80 ms, and the handshake and the request a round trip each.
    assert len(times) == 1 and 0.15 < times[0] < 2
