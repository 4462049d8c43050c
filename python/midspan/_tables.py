"""Tables as data frames of other libraries, which are imported only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._midspan import Table

if TYPE_CHECKING:
    import pandas
    import polars


def to_pandas(table: Table) -> pandas.DataFrame:
    """The table as a data frame of pandas."""
    import pandas

    return pandas.DataFrame(table.to_dict())


def to_polars(table: Table) -> polars.DataFrame:
    """The table as a data frame of polars, without a copy of the numbers."""
    import polars

    return polars.DataFrame(table)
