"""Plan and simulate TCP over bad paths, without proxies and with them.

>>> import midspan as ms
>>> path = ms.Path("geo-clean").set({"link.satellite.loss": 0.001})
>>> print(ms.plan(path).text)
>>> runs = ms.Sweep(path, over={"link.satellite.loss": "0.01 %..1 %:5log"}, repetitions=10).run()
>>> ms.to_pandas(runs)
"""

from ._errors import PathError
from ._midspan import Path, Plan, Table, __version__, built_in_paths, merge
from ._program import ProgramError, lab, reproduce
from ._sweep import Sweep, sim
from ._tables import to_pandas, to_polars

__all__ = [
    "Path",
    "PathError",
    "Plan",
    "ProgramError",
    "Sweep",
    "Table",
    "__version__",
    "built_in_paths",
    "lab",
    "merge",
    "plan",
    "reproduce",
    "sim",
    "to_pandas",
    "to_polars",
]


def plan(path: Path) -> Plan:
    """Analyses a path: what a proxy gains, where to put it, how to set it."""
    return Plan(path)
