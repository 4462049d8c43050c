//! Tam: Figs 3 to 7 and 9, and what §2.4, §4.3 and §5.2 say beside them, by simulation.

mod cable;
mod estimate;
mod figure_9;
mod measure;
mod safety;
mod scenarios;
mod scheme;
mod testbed;
#[cfg(test)]
mod tests;

use midspan_records::Record;

use crate::{Effort, Error, Simulated};

/// What is reproduced, by its item.
type Make = fn(&Effort) -> Result<Simulated, Error>;

const FIGURES: [(&str, Make); 7] = [
    ("figure 3", scenarios::figure_3),
    ("figure 4", scenarios::figure_4),
    ("section 4.3", scenarios::section_4_3),
    ("figure 5", |_| estimate::figure_5()),
    ("figure 6", scenarios::figure_6),
    ("figure 7", scenarios::figure_7),
    ("figure 9", figure_9::figure_9),
];

type Tell = fn(&Effort) -> Result<Vec<Record>, Error>;

const RECORDS: [(&str, Tell); 3] = [
    ("three terminals", figure_9::three_terminals),
    ("up- and download", figure_9::both_ways),
    ("section 2.4", figure_9::header_compression),
];

/// What is asked for.
pub(crate) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    for (item, make) in FIGURES {
        if effort.wants(item) {
            progress(item);
            let mut made = make(effort)?;
            out.records.append(&mut made.records);
            out.figures.append(&mut made.figures);
        }
    }
    for (item, tell) in RECORDS {
        if effort.wants(item) {
            progress(item);
            out.records.extend(tell(effort)?);
        }
    }
    if effort.wants("loss both ways") {
        let made = safety::safety(effort, progress)?;
        out.records.extend(made.records);
    }
    Ok(out)
}
