//! A table of rate, delay and loss over time.

use std::str::FromStr;

use midspan_units::{BitRate, ParseError, Probability, TimeSpan};

use super::{LOWEST_RATE, Part, TraceError};
use crate::schedule::{Schedule, Step};

/// The longest trace: one day.
const LONGEST: TimeSpan = TimeSpan::from_seconds(24 * 3600);
/// The shortest table: a shorter repetition would cost too much computing time.
const SHORTEST: TimeSpan = TimeSpan::from_milliseconds(1);
/// Most rows of a table.
const MOST_ROWS: usize = 1_000_000;
/// The highest rate of a table: 100 Gbit/s.
const HIGHEST_RATE: u64 = 100_000_000_000;
/// The longest delay of a table.
const LONGEST_DELAY: TimeSpan = TimeSpan::from_seconds(60);

/// The quantity of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Time,
    Rate,
    Delay,
    Loss,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
struct Column<'a> {
    quantity: Quantity,
    unit: &'a str,
}

/// A row of a table: the time as written, and what the other columns set.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    time: TimeSpan,
    step: Step,
}

/// The reader of a table.
pub(super) struct Table<'a> {
    columns: Vec<Column<'a>>,
}

impl<'a> Table<'a> {
    /// The rows below the line `header`, which has the names of the columns.
    pub(super) fn parse(
        header: Part<'a>,
        rows: impl Iterator<Item = Part<'a>>,
    ) -> Result<Schedule, TraceError> {
        let table = Self::from_header(header)?;
        let mut steps: Vec<Step> = Vec::new();
        let mut start = TimeSpan::ZERO;
        let mut end = header;
        for line in rows {
            if steps.len() == MOST_ROWS {
                return Err(line.error(format_args!("more than {MOST_ROWS} rows")));
            }
            let Row { time, step } = table.row(line, steps.is_empty())?;
            if steps.is_empty() {
                start = time;
            }
            let at = time - start;
            let before = steps.last().map(|step| step.at);
            if time < start || before.is_some_and(|before| at <= before) {
                return Err(line.error("not later than the row above"));
            }
            if at > LONGEST {
                return Err(line.error("later than 24 h: a trace lasts one day at most"));
            }
            steps.push(Step { at, ..step });
            end = line;
        }
        if steps.is_empty() {
            return Err(header.error("a row of values is missing below the names of the columns"));
        }
        Self::passes(&steps, header)?;
        // The last row lasts as long as the one before it.
        let repeat = match &steps[..] {
            [.., before, last] => Some(last.at + (last.at - before.at)),
            _ => None,
        };
        if repeat.is_some_and(|repeat| repeat < SHORTEST) {
            let problem = format!("the whole trace is shorter than {SHORTEST}");
            return Err(end.error(problem));
        }
        Ok(Schedule { steps, repeat })
    }

    /// The columns, from the first line.
    fn from_header(header: Part<'a>) -> Result<Self, TraceError> {
        let mut columns: Vec<Column<'a>> = Vec::new();
        for cell in header.cells() {
            let column = Column::parse(cell)?;
            if columns
                .iter()
                .any(|known| known.quantity == column.quantity)
            {
                return Err(cell.error("the table has this column already"));
            }
            columns.push(column);
        }
        let has = |quantity| columns.iter().any(|column| column.quantity == quantity);
        if !has(Quantity::Time) || columns.len() < 2 {
            let problem = "a table has the column `time` and one at least of `rate`, `delay` and \
                           `loss`, as in `time (s),rate (Mbit/s)`";
            return Err(header.error(problem));
        }
        Ok(Self { columns })
    }

    /// The values of a row. In the first one, none is missing.
    fn row(&self, line: Part<'a>, first: bool) -> Result<Row, TraceError> {
        let mut row = Row::default();
        let mut columns = self.columns.iter();
        for cell in line.cells() {
            let Some(column) = columns.next() else {
                let problem = format!("the table has {} columns only", self.columns.len());
                return Err(cell.error(problem));
            };
            if cell.text.is_empty() && (first || column.quantity == Quantity::Time) {
                return Err(cell.error("a value is missing"));
            }
            if !cell.text.is_empty() {
                column.read(cell, &mut row)?;
            }
        }
        match columns.next() {
            Some(_) => {
                let problem = format!("fewer values than the {} columns", self.columns.len());
                Err(line.error(problem))
            }
            None => Ok(row),
        }
    }

    /// Refuses a trace that no packet can pass.
    fn passes(steps: &[Step], header: Part<'_>) -> Result<(), TraceError> {
        // An empty cell repeats the value above it, and the first row has no empty cell.
        let passes = |step: &Step| step.rate.is_some_and(|rate| rate != LOWEST_RATE);
        if steps[0].rate.is_some() && !steps.iter().any(passes) {
            return Err(header.error("the rate is 0 in every row: no packet could pass"));
        }
        let passes = |step: &Step| step.loss.is_some_and(|loss| loss != Probability::ONE);
        if steps[0].loss.is_some() && !steps.iter().any(passes) {
            return Err(header.error("the loss is 100 % in every row: no packet could pass"));
        }
        Ok(())
    }
}

impl<'a> Column<'a> {
    /// A name with a unit, as in `rate (Mbit/s)`; a loss without a unit is a number from 0 to 1.
    fn parse(cell: Part<'a>) -> Result<Self, TraceError> {
        let (name, unit) = match cell.text.split_once('(') {
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(unit) => (name.trim_end(), unit.trim()),
                None => return Err(cell.error("the `)` after the unit is missing")),
            },
            None => (cell.text, ""),
        };
        let quantity = match name {
            "time" => Quantity::Time,
            "rate" => Quantity::Rate,
            "delay" => Quantity::Delay,
            "loss" => Quantity::Loss,
            _ => {
                let problem = "neither a number of milliseconds nor a column: the columns are \
                               `time`, `rate`, `delay` and `loss`";
                return Err(cell.error(problem));
            }
        };
        let column = Self { quantity, unit };
        // Whether the unit fits is shown by any number.
        let fits = match quantity {
            Quantity::Time | Quantity::Delay => column.value::<TimeSpan>("1").is_ok(),
            Quantity::Rate => column.value::<BitRate>("1").is_ok(),
            Quantity::Loss => column.value::<Probability>("0").is_ok(),
        };
        if fits {
            return Ok(column);
        }
        let example = match quantity {
            Quantity::Time => "`time (s)` or `time (ms)`",
            Quantity::Rate => "`rate (Mbit/s)` or `rate (kbit/s)`",
            Quantity::Delay => "`delay (ms)` or `delay (s)`",
            Quantity::Loss => "`loss (%)`, or `loss` for numbers from 0 to 1",
        };
        Err(cell.error(format_args!(
            "a unit is missing or unknown: write {example}"
        )))
    }

    /// Sets the value of a cell in a row.
    fn read(&self, cell: Part<'_>, row: &mut Row) -> Result<(), TraceError> {
        let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        if !cell.text.bytes().all(plain) {
            return Err(cell.error("not a number: write digits and a decimal point"));
        }
        let value = cell.text;
        let bounded = |within: bool, most: &str| match within {
            true => Ok(()),
            false => Err(cell.error(format_args!("too large: at most {most}"))),
        };
        match self.quantity {
            Quantity::Time => row.time = self.value(value).map_err(|error| cell.error(error))?,
            // A link with the lowest rate sends one bit in a second, which no packet notices.
            Quantity::Rate if is_zero(value) => {
                row.step.rate = Some(LOWEST_RATE);
            }
            Quantity::Rate => {
                let rate: BitRate = self.value(value).map_err(|error| cell.error(error))?;
                bounded(rate.bits_per_second() <= HIGHEST_RATE, "100 Gbit/s")?;
                row.step.rate = Some(rate);
            }
            Quantity::Delay => {
                let delay: TimeSpan = self.value(value).map_err(|error| cell.error(error))?;
                bounded(delay <= LONGEST_DELAY, "60 s")?;
                row.step.delay = Some(delay);
            }
            Quantity::Loss => {
                let loss: Probability = self.value(value).map_err(|error| cell.error(error))?;
                row.step.loss = Some(loss);
            }
        }
        Ok(())
    }

    /// A number in the unit of the column.
    fn value<T: FromStr<Err = ParseError>>(&self, number: &str) -> Result<T, ParseError> {
        format!("{number} {}", self.unit).parse()
    }
}

/// Whether a number is zero, however many zeros it has.
fn is_zero(number: &str) -> bool {
    number.contains('0') && number.trim_matches('0').trim_end_matches('.').is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::RecordedTrace;
    use super::super::tests::assert_error;
    use super::*;

    fn schedule(text: &str) -> Schedule {
        match RecordedTrace::parse(text).unwrap() {
            RecordedTrace::Changes(schedule) => schedule,
            RecordedTrace::Opportunities(_) => panic!("no table: {text}"),
        }
    }

    fn milliseconds(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn a_table_is_a_schedule() {
        let read = schedule(
            "time (s),rate (Mbit/s),delay (ms),loss (%)\n1700000000.5,10,20,0.5\n\
             1700000001, 0.0 ,,\r\n1700000002.5,2.5,30.5,100",
        );
        let rate = |rate: &str| Some(rate.parse().unwrap());
        let expected = [
            Step {
                at: milliseconds(0),
                rate: rate("10 Mbit/s"),
                delay: Some(milliseconds(20)),
                loss: Some("0.5 %".parse().unwrap()),
            },
            Step {
                at: milliseconds(500),
                rate: rate("1 bit/s"),
                ..Step::default()
            },
            Step {
                at: milliseconds(2000),
                rate: rate("2.5 Mbit/s"),
                delay: Some(TimeSpan::from_nanoseconds(30_500_000)),
                loss: Some(Probability::ONE),
            },
        ];
        assert_eq!(read.steps, expected);
        // The last row lasts as long as the one before it.
        assert_eq!(read.repeat, Some(milliseconds(3500)));
        assert_eq!(read.check(), Ok(()));
        // Any order of the columns, other units.
        let read = schedule("loss, time (ms)\n0.25,7\n");
        assert_eq!(read.repeat, None);
        let loss = Some("25 %".parse().unwrap());
        assert_eq!(
            read.steps,
            [Step {
                loss,
                ..Step::default()
            }]
        );
    }

    #[test]
    fn mistakes_in_a_table_have_a_place() {
        assert_error(
            "time (s),speed (Mbit/s)\n",
            "speed (Mbit/s)",
            "neither a number",
        );
        assert_error("time,rate (Mbit/s)\n", "time", "`time (s)`");
        assert_error("time (s),rate (MB)\n", "rate (MB)", "`rate (Mbit/s)`");
        assert_error("time (s),delay (ms\n", "delay (ms", "`)`");
        assert_error("time (s),loss (%),loss\n", "loss", "already");
        assert_error("time (s)\n0\n", "time (s)", "one at least of");
        assert_error("rate (bit/s)\n1\n", "rate (bit/s)", "has the column `time`");
        assert_error(
            "time (s),loss (%)\n",
            "time (s),loss (%)",
            "a row of values is missing",
        );

        let table = |rows: &str| format!("time (s),rate (Mbit/s),loss (%)\n{rows}");
        for (rows, place, problem) in [
            ("0,1,0\n1,2\n", "1,2", "fewer values"),
            ("0,1,0\n1,2,0,5\n", "5", "3 columns only"),
            ("0,1,\n", "", "missing"),
            ("0,1,0\n,2,0\n", "", "missing"),
            ("0,1,0\n1,x,0\n", "x", "not a number"),
            ("0,1,0\n1,1e3,0\n", "1e3", "not a number"),
            ("0,1,0\n1,-1,0\n", "-1", "not a number"),
            ("0,1,0\n1,1.2.3,0\n", "1.2.3", "must begin with a number"),
            ("0,.,0\n", ".", "must begin with a number"),
            ("0,1,101\n", "101", "out of range"),
            ("0,100001,0\n", "100001", "at most 100 Gbit/s"),
            ("0,1,0\n0,2,0\n", "0,2,0", "not later"),
            ("5,1,0\n4,2,0\n", "4,2,0", "not later"),
            ("0,1,0\n86401,2,0\n", "86401,2,0", "24 h"),
            ("0,1,0\n0.0004,2,0\n", "0.0004,2,0", "shorter than 1 ms"),
            (
                "0,0,0\n1,,0\n",
                "time (s),rate (Mbit/s),loss (%)",
                "the rate is 0",
            ),
            (
                "0,1,100\n1,2,\n",
                "time (s),rate (Mbit/s),loss (%)",
                "the loss is 100 %",
            ),
        ] {
            assert_error(&table(rows), place, problem);
        }
        let delay = "time (s),delay (s)\n0,60.1\n";
        assert_error(delay, "60.1", "at most 60 s");
    }
}
