//! The cases: one file for each kind of program.

mod databases;
mod gateways;
mod messages;
mod remote;
mod secure;
mod sockets;
mod web;

use crate::case::Case;
use crate::needed::Needed;

/// All cases, in the order of tables.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        remote::CASES,
        web::CASES,
        secure::CASES,
        databases::CASES,
        messages::CASES,
        sockets::CASES,
        gateways::CASES,
    ]
    .concat()
}

// Programs that several kinds of cases need.
const CURL: Needed = Needed::new("curl", "curl");
const NC: Needed = Needed::new("/bin/nc.openbsd", "netcat-openbsd");
const NGINX: Needed = Needed::new("nginx", "nginx-light");
const OPENSSL: Needed = Needed::new("openssl", "openssl");
const PYTHON: Needed = Needed::new("python3", "python3-minimal");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;
    use crate::differences;

    #[test]
    fn names_are_distinct() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn every_case_has_a_client_that_compares_something() {
        for case in all() {
            assert!(!case.families.is_empty(), "{}", case.name);
            let prints = [
                "echo", "status", "succeeds", "digest", "print", "seen", "python3", "grep", "cat ",
            ];
            let prints = prints.iter().any(|word| case.client.contains(word));
            assert!(prints, "{}: its client prints nothing", case.name);
        }
    }

    #[test]
    fn the_packages_of_all_cases_are_installed_by_one_command() {
        let script = include_str!("../../../../scripts/install-dependencies");
        // Large packages, which are used only if they are already installed, and packages that
        // every Debian system has.
        let left_out = [
            "apt",
            "chromium",
            "default-jdk-headless",
            "firefox-esr",
            "iproute2",
            "nodejs",
            "util-linux",
        ];
        for needed in all().iter().flat_map(|case| case.needs) {
            let package = needed.package;
            let module = package.strip_prefix("python3-").unwrap_or("");
            let is_named = script.contains(&format!(":{package}\n"))
                || script.contains(&format!(" {module} ")) && !module.is_empty()
                || script.contains(&format!(" {module};")) && !module.is_empty();
            assert!(is_named || left_out.contains(&package), "{package}");
        }
    }

    #[test]
    fn a_difference_belongs_to_a_case_that_exists() {
        let cases = all();
        assert!(differences::names_known_cases(
            cases.iter().map(|case| case.name)
        ));
    }
}
