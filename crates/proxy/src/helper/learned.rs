//! Lists what is left alone, and forgets what was learned.

use std::time::Duration;

use midspan_gateway::interception::Pair;
use midspan_policy::hosts::Hosts;
use tracing::{info, warn};

use super::commands::{NO_PREFIX, parse};
use super::supervision::Supervisor;
use crate::command::Answer;
use crate::control::FromRelay;
use crate::learned::{ForgottenCounts, LeftAloneRow};

impl Supervisor {
    /// Lists the routes that are left alone because splitting was found not to help.
    pub(super) fn list_left_alone(&mut self) -> Answer {
        match self.left_alone() {
            Ok(pairs) => Answer {
                ok: true,
                left_alone: Some(pairs.iter().map(row).collect()),
                ..Answer::default()
            },
            Err(said) => Answer::error(said),
        }
    }

    /// Forgets what was learned about clients and servers with a prefix, or about all.
    pub(super) fn forget(&mut self, prefix: Option<&str>) -> Answer {
        let prefix = match prefix.map(parse) {
            None => None,
            Some(Some(prefix)) => Some(prefix),
            Some(None) => return Answer::error(NO_PREFIX),
        };
        let hosts = prefix.map_or(Hosts::ALL, Hosts::with_prefix);
        self.orders += 1;
        let order = self.orders;
        let result = match self.relay.forget(order, prefix) {
            Ok(()) => self.wait_for(|message| match message {
                FromRelay::Forgotten { number, forgotten } if *number == order => Some(*forgotten),
                _ => None,
            }),
            Err(error) => Err(error),
        };
        let forgotten = match result {
            Ok(forgotten) => forgotten,
            Err(error) => return Answer::error(error.to_string()),
        };
        // After the relay, so that no route that it found before is left alone afterwards.
        let left_alone = match self.end_leaving_alone(&hosts) {
            Ok(left_alone) => left_alone,
            Err(said) => return Answer::error(format!("not all is forgotten: {said}")),
        };
        let mut notes = Vec::new();
        if forgotten.is_none() {
            notes.push("the relay is still busy, and forgets the rest soon".to_owned());
        }
        if self.relay.is_state_failing() {
            notes.push(
                "the file of verdicts about clients cannot be written, so that they are back after \
                 a restart: see the log"
                    .to_owned(),
            );
        }
        let forgotten = ForgottenCounts {
            left_alone,
            ..forgotten.unwrap_or_default()
        };
        info!(?prefix, ?forgotten, "forgotten");
        Answer {
            ok: true,
            notes,
            forgotten: Some(forgotten),
            ..Answer::default()
        }
    }

    /// The routes that are left alone, each with the rest of its time.
    fn left_alone(&mut self) -> Result<Vec<(Pair, Duration)>, String> {
        match &mut self.guard {
            None => Ok(Vec::new()),
            Some(guard) => guard.left_alone().map_err(|error| error.to_string()),
        }
    }

    /// New connections of these hosts are intercepted again where splitting was found not to help;
    /// returns the number of routes.
    fn end_leaving_alone(&mut self, hosts: &Hosts) -> Result<u64, String> {
        let is_meant = |pair: &Pair| hosts.are_in(pair.client) || hosts.are_in(pair.server);
        let pairs = self.left_alone()?.into_iter().map(|(pair, _)| pair);
        let pairs: Vec<Pair> = pairs.filter(is_meant).collect();
        let count = pairs.len() as u64;
        if count > 0
            && let Some(guard) = &mut self.guard
            && let Err(error) = guard.end_leaving_alone(pairs)
        {
            warn!("rules cannot be changed, they are tried again: {error}");
            return Err(format!(
                "the rules cannot be changed yet, Midspan will try again: {error}"
            ));
        }
        Ok(count)
    }
}

fn row((pair, left): &(Pair, Duration)) -> LeftAloneRow {
    LeftAloneRow {
        client: pair.client.to_string(),
        servers: pair.server.to_string(),
        left_seconds: left.as_secs_f64(),
    }
}
