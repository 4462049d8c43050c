"""What the program `midspan` does: the lab, with real kernels over emulated links, and the papers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any, Optional, Sequence, Union

from ._midspan import Path


class ProgramError(RuntimeError):
    """The program `midspan` has failed; the text is its standard error."""


def lab(
    path: Union[Path, str],
    cases: Sequence[str] = ("direct", "midspan"),
    repetitions: int = 1,
    flows: Sequence[str] = (),
    seed: Optional[int] = None,
    state: Optional[os.PathLike[str]] = None,
    program: str = "midspan",
) -> list[dict[str, Any]]:
    """Measures a path on real kernels; returns the records that `midspan lab --json` prints.

    A process of its own does this, because the lab needs network namespaces, which a process with
    threads cannot enter. It needs Linux and the program `midspan` with the lab (package
    midspan-lab). A measurement that is void or missed has a note in its record; it is no error.
    """
    path = Path(path) if isinstance(path, str) else path
    arguments = ["--against", ",".join(cases), "--repetitions", str(repetitions)]
    if flows:
        arguments += ["--flows", ",".join(flows)]
    if seed is not None:
        arguments += ["--seed", str(seed)]
    if state is not None:
        arguments += ["--state", os.path.abspath(os.fspath(state))]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, f"{path.name}.toml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(path.to_toml())
        return _records(program, ["lab", file, *arguments])


def reproduce(paper: str, item: Optional[str] = None, quick: bool = False, program: str = "midspan") -> list[dict[str, Any]]:
    """A paper's figures and tables beside the analysis and the simulator, as records.

    They are those that `midspan reproduce --json` prints. `item` is one of them, such as "figure 8".
    """
    arguments = [paper] + ([item] if item else []) + (["--quick"] if quick else [])
    return _records(program, ["reproduce", *arguments])


def _records(program: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    command = [program, *arguments, "--json"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError as error:
        raise ProgramError(f"cannot start {program}: install the packages midspan and midspan-lab") from error
    # Status 3: a run was void, or a bound was missed.
    if done.returncode not in (0, 3):
        problem = f"{program} ended with status {done.returncode}"
        raise ProgramError(done.stderr.strip() or problem)
    records: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return records
