"""What Dask costs: the same sweep on threads and on as many workers of Dask, in pairs.

    python dask_overhead.py [--rounds 5] [--runs 1000] [--points 1] [--milliseconds 10] [--json]

The download of the sweep is made so large that a run takes about the given time on one thread. In each round, the
threads and the workers make all runs, the second round in the other order; both write each run to a new folder. The
start of the workers is not counted. With more points, each value of a swept key has fewer repetitions. Nothing else
should run on the machine. Exit code 3: the median is above 1.25.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import distributed
import midspan as ms

LIMIT = 1.25

PATH = """
[[host]]
name = "client"
[[proxy]]
name = "gateway"
[[host]]
name = "server"
[[link]]
name = "access"
between = ["client", "gateway"]
rate = "20 Mbit/s"
delay = "20 ms"
loss = "0.1 %"
[[link]]
name = "backbone"
between = ["gateway", "server"]
rate = "1 Gbit/s"
delay = "20 ms"
[[flow]]
name = "file"
from = "client"
to = "server"
workload = "download"
size = "SIZE MB"
"""


def sweep(runs, megabytes, points=1):
    path = ms.Path.from_toml(PATH.replace("SIZE", str(megabytes)), "overhead")
    # The points are so close to each other that their runs take the same time.
    delays = [f"{20_000 + number} us" for number in range(points)]
    # Each repetition is two runs: without the proxy, and with it.
    return ms.Sweep(path, over={"link.backbone.delay": delays}, repetitions=runs // 2 // points)


def seconds(made, **how):
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        made.run(store=folder, **how)
        return time.perf_counter() - begin


def size_of(milliseconds):
    """The size of the download in MB, and how many milliseconds a run of this size takes."""
    megabytes = 1
    while True:
        taken = seconds(sweep(20, megabytes), threads=1) / 20 * 1000
        if taken >= milliseconds * 0.9:
            return megabytes, taken
        megabytes = max(megabytes + 1, round(megabytes * min(milliseconds / taken, 4)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1, help="values of a swept key")
    parser.add_argument("--milliseconds", type=float, default=10, help="of one run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    workers = os.cpu_count() or 1
    megabytes, each = size_of(arguments.milliseconds)
    expected = 2 * arguments.rounds * arguments.runs * each / 1000 / workers
    print(
        f"downloads of {megabytes} MB: {each:.1f} ms a run; {arguments.rounds} rounds of 2 × {arguments.runs} runs"
        f" on {workers} cores: about {expected:.0f} s",
        file=sys.stderr,
    )
    made = sweep(arguments.runs, megabytes, arguments.points)
    rounds = []
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        # The workers import the package once, before anything is measured.
        sweep(2 * workers * 8, 1).run(executor=client)
        for number in range(arguments.rounds):
            ways = [("threads", {"threads": workers}), ("dask", {"executor": client})]
            times = {name: seconds(made, **how) for name, how in (ways if number % 2 == 0 else reversed(ways))}
            rounds.append({**times, "ratio": times["dask"] / times["threads"]})
            print(
                f"round {number + 1}: threads {times['threads']:.2f} s, Dask {times['dask']:.2f} s,"
                f" ratio {rounds[-1]['ratio']:.3f}",
                file=sys.stderr,
            )
    ratios = sorted(entry["ratio"] for entry in rounds)
    median = statistics.median(ratios)
    if arguments.json:
        print(json.dumps({"milliseconds": each, "runs": arguments.runs, "workers": workers, "rounds": rounds, "median": median}))
    else:
        print(f"Dask takes {median:.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}] of the time of threads (asked: at most {LIMIT})")
    return 0 if median <= LIMIT else 3


if __name__ == "__main__":
    sys.exit(main())
