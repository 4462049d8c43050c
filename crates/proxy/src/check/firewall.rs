//! Whether the host's firewall lets intercepted connections work.

use midspan_gateway::interception::survey::Survey;
use midspan_linux::capability::{self, Capability};

use super::conflicts::has_leftovers;
use super::{Context, Finding};
use crate::Error;
use crate::helper::try_firewall;

const CHECK: &str = "firewall";
/// `ENETDOWN`, as errors write it.
const NETWORK_DOWN: &str = "os error 100)";

pub(super) fn findings(context: &Context<'_>) -> Result<Vec<Finding>, Error> {
    let configuration = context.configuration;
    let held = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]
        .into_iter()
        .all(|capability| capability::is_held(capability).unwrap_or(false));
    if !held {
        return Ok(vec![Finding::warning(
            CHECK,
            "not tried, which needs CAP_NET_ADMIN and CAP_NET_RAW",
            "run as root",
        )]);
    }
    let survey = Survey::take(&configuration.interception.numbers);
    if survey.is_ok_and(|survey| has_leftovers(context, &survey)) {
        return Ok(vec![Finding::warning(
            CHECK,
            "not tried: rules that a killed Midspan has left are in the way",
            "start midspan run, which removes them and tries the firewall",
        )]);
    }
    let findings = match try_firewall(configuration, context.running.is_some()) {
        Ok(obstacles) if obstacles.is_empty() => vec![Finding::ok(
            CHECK,
            "intercepted connections pass INPUT and OUTPUT, by trial",
        )],
        Ok(obstacles) => obstacles
            .iter()
            .map(|obstacle| Finding::missing(CHECK, obstacle.finding(), obstacle.remedy()))
            .collect(),
        Err(error @ Error::Interrupted) => return Err(error),
        Err(error) => {
            // The first route of a machine's own is that of `lo`.
            let mend = match error.to_string().contains(NETWORK_DOWN) {
                true => "ip link set lo up",
                false => "fix what is missing above, and check again",
            };
            let found = format!("connections cannot be intercepted: {error}");
            vec![Finding::missing(CHECK, found, mend)]
        }
    };
    Ok(findings)
}
