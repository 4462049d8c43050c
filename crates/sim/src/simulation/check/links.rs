//! Queues, header compression and cables.

use midspan_link::{Direction, QueueLimit};
use midspan_units::TimeSpan;

use crate::scenario::{Cable, Scenario, ScenarioError, ScenarioLink};

fn error(place: String, setting: &'static str, problem: &str) -> ScenarioError {
    ScenarioError::Setting {
        place,
        setting,
        problem: problem.to_owned(),
    }
}

pub(super) fn check_queues(link: &ScenarioLink) -> Result<(), ScenarioError> {
    for end in [Direction::Up, Direction::Down].map(|end| usize::from(end == Direction::Down)) {
        let place = || format!("link \"{}\"", link.name);
        let configuration = &link.directions[end];
        let bytes = matches!(configuration.queue, QueueLimit::Bytes(_));
        if bytes && !configuration.queue_discipline.is_plain() {
            let problem = "counts bytes; a queue that filters, marks or prefers ACKs has a limit \
                           in packets";
            return Err(error(place(), "the queue", problem));
        }
        if configuration.header_compression && !configuration.is_fixed() {
            let problem = "needs a plain queue and an unchanging link";
            return Err(error(place(), "header compression", problem));
        }
    }
    Ok(())
}

pub(super) fn check_cable(scenario: &Scenario, cable: &Cable) -> Result<(), ScenarioError> {
    let place = || format!("cable \"{}\"", cable.name);
    let fails = |setting, problem: &str| Err(error(place(), setting, problem));
    let settings = &cable.configuration;
    let spans = [
        ("the poll", settings.poll),
        ("the slot", settings.slot),
        ("the contention interval", settings.contention_interval),
    ];
    if let Some((setting, _)) = spans.into_iter().find(|(_, span)| *span == TimeSpan::ZERO) {
        return fails(setting, "takes no time; it must be above zero");
    }
    if settings.rounds == 0 {
        return fails(
            "the rounds of contention",
            "are none; one at least is needed",
        );
    }
    if cable.links.is_empty() {
        return fails("the links", "are none");
    }
    let mut routers = Vec::new();
    for link in &cable.links {
        let Some(known) = scenario.links.get(link.0) else {
            return fails("a link", "does not exist");
        };
        let of = |cable: &&Cable| cable.links.contains(link);
        let times = cable.links.iter().filter(|other| *other == link).count();
        if times > 1 || scenario.cables.iter().filter(of).count() > 1 {
            return fails("a link", "stands in it or in another cable already");
        }
        if known.directions[0].state.rate.is_some() {
            return fails("a link", "has a rate upwards; that is the cable's");
        }
        if !known.directions[0].suits_a_shared_medium() {
            return fails("a link", "changes over time upwards, or compresses headers");
        }
        routers.push(known.between[1]);
    }
    if routers.windows(2).any(|pair| pair[0] != pair[1]) {
        return fails("the links", "do not lead up to the same node");
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot be set up fails.
mod tests {
    use midspan_link::{Configuration, PolledConfiguration, State};

    use super::*;
    use crate::scenario::LinkId;

    fn scenario(rate: Option<&str>) -> (Scenario, [LinkId; 2], PolledConfiguration) {
        let mut scenario = Scenario::new(1, TimeSpan::from_seconds(1));
        let router = scenario.add_node("router");
        let up = Configuration {
            state: State {
                rate: rate.and_then(|rate| rate.parse().ok()),
                ..State::default()
            },
            ..Configuration::default()
        };
        let links = ["one", "other"].map(|name| {
            let user = scenario.add_node(name);
            scenario.add_link(name, user, router, &up, &Configuration::default())
        });
        let millisecond = TimeSpan::from_milliseconds(1);
        let cable = PolledConfiguration {
            rate: "1 Mbit/s".parse().unwrap(),
            poll: millisecond,
            slot: millisecond,
            contention_interval: millisecond,
            confirmation: millisecond,
            polled_for: millisecond,
            rounds: 10,
        };
        (scenario, links, cable)
    }

    fn problem(scenario: &Scenario) -> Option<String> {
        let checked = scenario
            .cables
            .iter()
            .try_for_each(|cable| check_cable(scenario, cable));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn a_cable_that_makes_no_sense_is_refused() {
        let (mut good, links, cable) = scenario(None);
        good.add_cable("plant", &links, cable);
        assert_eq!(problem(&good), None);

        let refused = |rate, change: fn(&mut Scenario, [LinkId; 2], PolledConfiguration)| {
            let (mut scenario, links, cable) = scenario(rate);
            change(&mut scenario, links, cable);
            problem(&scenario).unwrap_or_default()
        };
        let twice = refused(None, |scenario, links, cable| {
            scenario.add_cable("plant", &links, cable);
            scenario.add_cable("other", &links[..1], cable);
        });
        assert!(twice.contains("already"), "{twice}");
        let rate = refused(Some("1 Mbit/s"), |scenario, links, cable| {
            scenario.add_cable("plant", &links, cable);
        });
        assert!(rate.contains("rate"), "{rate}");
        let slot = refused(None, |scenario, links, mut cable| {
            cable.slot = TimeSpan::ZERO;
            scenario.add_cable("plant", &links, cable);
        });
        assert!(slot.contains("the slot"), "{slot}");
        let unknown = refused(None, |scenario, _, cable| {
            scenario.add_cable("plant", &[LinkId(9)], cable);
        });
        assert!(unknown.contains("does not exist"), "{unknown}");
    }
}
