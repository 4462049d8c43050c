"""Sweeps: simulated runs on threads, or on the workers of an executor."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from concurrent.futures import as_completed
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from ._midspan import Path, Runs, RunStore, Table

Value = Union[str, int, float, bool]
Progress = Union[bool, Callable[[int, int], Any], None]

# An executor gets this many batches for each of its workers, so that slow batches even out.
BATCHES_PER_WORKER = 8
# A batch has at most this many runs: what is lost with a worker.
LARGEST_BATCH = 200


class Sweep:
    """Runs of a path over values of its keys.

    `over` has the values of each swept key, as a list or as a range in a text such as
    "10 ms..300 ms:30"; every combination is a point. Each point runs `repetitions` times, with the
    seeds S, S + 1, …, the same at every point, without the path's proxies and with them.
    """

    def __init__(
        self,
        path: Union[Path, str],
        over: Optional[Mapping[str, Union[str, Sequence[Value]]]] = None,
        repetitions: int = 1,
        flows: Sequence[str] = (),
        seed: Optional[int] = None,
    ) -> None:
        self.path = Path(path) if isinstance(path, str) else path
        self.over = {key: values if isinstance(values, str) else list(values) for key, values in (over or {}).items()}
        self.repetitions = repetitions
        self.flows = list(flows)
        self.seed = seed
        self._runs = Runs(self.path, self.over, repetitions, self.flows, seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sweep, (self.path, self.over, self.repetitions, self.flows, self.seed)

    def __repr__(self) -> str:
        return f"<midspan.Sweep of {self.path!r} over {self.over}, {self.repetitions} repetitions>"

    def missing(self, store: Optional[os.PathLike[str]] = None) -> list[int]:
        """The numbers of the runs that the store lacks."""
        return self._runs.missing(_name(store))

    def run(
        self,
        store: Optional[os.PathLike[str]] = None,
        executor: Any = None,
        threads: Optional[int] = None,
        progress: Progress = None,
    ) -> Table:
        """Makes all runs that the store lacks; returns one row for each quantity of each run.

        `store` is a file, or an existing folder, that keeps every finished run: the same call
        continues after an interruption. `executor` is a `dask.distributed.Client` or an executor of
        `concurrent.futures`, whose workers make the runs; without it, `threads` of this process do
        (default: one for each core). If `store` is a folder, the workers write each run to it as soon
        as the run has ended, so it must be shared; a file gets each batch when its worker has made
        it. `progress` is a function that is called with the number of runs that have
        ended and of all runs to be made; `True` prints a line on standard error.
        """
        report = _reporter(progress)
        if executor is None:
            return self._runs.run(_name(store), [], threads, report)
        return self._distribute(_name(store), executor, report)

    def run_shard(
        self,
        shard: str,
        store: os.PathLike[str],
        threads: Optional[int] = None,
        progress: Progress = None,
    ) -> int:
        """Makes only the runs of one part that the store lacks; returns how many it has made.

        `shard` is "K/N": the part K of N parts, K from 0 to N - 1, as the numbers of array jobs
        (`SLURM_ARRAY_TASK_ID`, `JOB_COMPLETION_INDEX`). `merge` joins the stores of all parts, and `run`
        with the merged store returns the table.
        """
        return self._runs.run_shard(shard, os.fspath(store), threads, _reporter(progress))

    def _distribute(self, store: Optional[str], executor: Any, report: Optional[Callable[[int, int], Any]]) -> Table:
        missing = self._runs.missing(store)
        # Workers write each run to a folder. A file is written by this process, as soon as a batch is there.
        folder = os.path.abspath(store) if store is not None and os.path.isdir(store) else None
        batches = list(_batches(missing, _workers(executor)))
        # Results of a Dask client are kept under the key of their arguments; a run is not, by `pure`.
        options = {"pure": False} if _is_dask(executor) else {}
        pickled = pickle.dumps(self)
        futures = [executor.submit(_make, pickled, batch, folder, **options) for batch in batches]
        file = RunStore(store) if store is not None and folder is None else None
        lines: list[str] = []
        done = 0
        try:
            for future in _completed(executor, futures):
                ended, made = future.result()
                done += ended
                if file is not None:
                    file.add(made)
                else:
                    lines.extend(made)
                if report is not None:
                    report(done, len(missing))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return self._runs.run(store, lines, None, None)


def sim(
    path: Union[Path, str],
    flows: Sequence[str] = (),
    seed: Optional[int] = None,
) -> Table:
    """Simulates a path once, without its proxies and with them."""
    return Sweep(path, flows=flows, seed=seed).run()


@functools.lru_cache(maxsize=4)
def _sweep(pickled: bytes) -> Sweep:
    """The sweep of a batch. A worker reads the paths of all points once, and not again for each batch."""
    sweep: Sweep = pickle.loads(pickled)
    return sweep


def _make(pickled: bytes, numbers: Sequence[int], folder: Optional[str]) -> tuple[int, list[str]]:
    """What a worker does: makes these runs, on one thread; returns their number, and without a folder also the runs.

    If the worker is killed, another one gets the batch and makes only the runs that the folder lacks.
    """
    sweep = _sweep(pickled)
    if folder is None:
        return len(numbers), sweep._runs.lines(set(numbers), 1)
    sweep._runs.write(set(numbers), folder, 1)
    return len(numbers), []


def _name(store: Optional[os.PathLike[str]]) -> Optional[str]:
    return None if store is None else os.fspath(store)


def _is_dask(executor: Any) -> bool:
    return type(executor).__module__.split(".")[0] == "distributed"


def _workers(executor: Any) -> int:
    """How many runs the executor makes at the same time, if it can be found out."""
    if _is_dask(executor):
        threads: dict[str, int] = executor.nthreads()
        return max(1, sum(threads.values()))
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


def _batches(numbers: Sequence[int], workers: int) -> Iterator[Sequence[int]]:
    size = -(-len(numbers) // (workers * BATCHES_PER_WORKER)) if numbers else 1
    size = min(max(size, 1), LARGEST_BATCH)
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _completed(executor: Any, futures: list[Any]) -> Iterable[Any]:
    if _is_dask(executor):
        import distributed

        completed: Iterable[Any] = distributed.as_completed(futures)  # type: ignore[no-untyped-call]
        return completed
    return as_completed(futures)


def _reporter(progress: Progress) -> Optional[Callable[[int, int], Any]]:
    if not progress:
        return None
    if callable(progress):
        return progress

    def report(done: int, total: int) -> None:
        end = "\n" if done == total else ""
        print(f"\r{done} of {total} runs", end=end, file=sys.stderr, flush=True)

    return report
