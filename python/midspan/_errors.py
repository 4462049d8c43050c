"""The exceptions of Midspan."""

from __future__ import annotations

from typing import Any, Optional


class PathError(ValueError):
    """A path file or a value of one is wrong, at one place.

    The text has the file, line and column, the problem and the remedy. The attributes have them
    apart; `line` and `column` count from 1.
    """

    def __init__(
        self,
        text: str,
        line: int = 0,
        column: int = 0,
        problem: str = "",
        help: Optional[str] = None,
    ) -> None:
        super().__init__(text)
        self.line = line
        self.column = column
        self.problem = problem
        self.help = help

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self),
            (self.args[0], self.line, self.column, self.problem, self.help),
        )
