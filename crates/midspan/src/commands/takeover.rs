//! `midspan takeover`: resets connections that this gateway does not know, after it has taken over from another one.

use midspan_proxy::configuration::Configuration;
use midspan_proxy::take_over;

use super::Outcome;
use crate::arguments::TakeoverOptions;
use crate::printing;

/// Sets or removes the rules, and prints for which interfaces.
pub fn takeover(options: &TakeoverOptions) -> Outcome {
    let configuration = Configuration::load(&options.config)?;
    let time = (!options.end).then_some(options.time);
    let done = take_over(&configuration, time)?;
    if options.output.json {
        printing::json(&done)?;
        return Ok(true);
    }
    for note in &done.notes {
        printing::note(format_args!("note: {note}"));
    }
    let interfaces = done.interfaces.join(", ");
    match time {
        Some(time) => printing::line(format_args!(
            "for {time}, packets of unknown connections of clients at {interfaces} are answered by a reset"
        )),
        None => printing::line(format_args!(
            "packets of unknown connections of clients at {interfaces} are no longer answered by a reset"
        )),
    }
    Ok(true)
}
