"""A sweep on real workers of Ray, through the executor that docs/python.md shows."""

import midspan as ms
import pytest

ray = pytest.importorskip("ray")


class RayExecutor:
    """What a sweep needs of an executor: `submit` with a future of `concurrent.futures`."""

    def submit(self, function, *arguments):
        return ray.remote(function).remote(*arguments).future()


def test_workers_of_ray_give_the_same_rows(tmp_path):
    sweep = ms.Sweep("dsl", over={"link.line.loss": "0.1 %..1 %:4"}, repetitions=5)
    expected = sweep.run().to_dict()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        made = sweep.run(executor=RayExecutor(), store=tmp_path).to_dict()
    finally:
        ray.shutdown()
    for columns in (made, expected):
        del columns["commit"]
    assert made == expected
    assert sweep.missing(tmp_path) == []
