//! Prometheus and Alertmanager on the gateway.

use std::fs;
use std::net::SocketAddr;

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::client;
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::testing::{wait_until, wait_within};
use serde_json::Value;
use std::time::Duration;

/// The folder of the shipped rules.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
/// How long an alert may take, on a busy machine.
const ALERT_LIMIT: Duration = Duration::from_secs(120);

const PROMETHEUS: &str = "127.0.0.1:9090";
const ALERTMANAGER: &str = "127.0.0.1:9093";

/// A running pair of both.
pub struct Monitoring<'a> {
    gateway: &'a NetworkNamespace,
    _programs: [Program; 2],
    _folder: tempfile::TempDir,
}

/// The shipped rules with all times divided by 60.
fn faster_rules() -> String {
    let text = fs::read_to_string(format!("{FOLDER}/midspan.rules.yml")).unwrap();
    let mut faster = String::new();
    for line in text.lines() {
        let line = match line.trim_start().strip_prefix("for: ") {
            Some(time) => line.replace(time, &divided(time)),
            None => {
                let mut parts = line.split('[');
                let mut line = parts.next().unwrap().to_owned();
                for part in parts {
                    let (time, rest) = part.split_once(']').unwrap();
                    line.push_str(&format!("[{}]{rest}", divided(time)));
                }
                line
            }
        };
        faster.push_str(&line);
        faster.push('\n');
    }
    faster
}

fn divided(time: &str) -> String {
    let (number, unit) = time.split_at(time.len() - 1);
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => panic!("{time}: write a time in m, h or d"),
    };
    let number: u64 = number.parse().unwrap();
    format!("{}s", number * seconds / 60)
}

impl<'a> Monitoring<'a> {
    /// Both, ready, in the namespace of the Midspan that they watch.
    pub fn start(gateway: &'a NetworkNamespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (rules, settings, routes) = (path("rules.yml"), path("settings.yml"), path("am.yml"));
        fs::write(&rules, faster_rules()).unwrap();
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
             rule_files: [\"{rules}\"]\n\
             alerting: {{ alertmanagers: [{{ static_configs: [{{ targets: [\"{ALERTMANAGER}\"] }}] }}] }}\n\
             scrape_configs:\n  - job_name: midspan\n    \
             static_configs: [{{ targets: [\"127.0.0.1:9464\"] }}]\n"
        );
        fs::write(&settings, text).unwrap();
        fs::write(
            &routes,
            "route: { receiver: none }\nreceivers: [{ name: none }]\n",
        )
        .unwrap();
        let alertmanager = Launch::new("prometheus-alertmanager")
            .args([
                format!("--config.file={routes}"),
                format!("--storage.path={}", path("alertmanager")),
                format!("--web.listen-address={ALERTMANAGER}"),
                "--cluster.listen-address=".to_owned(),
            ])
            .without_output()
            .inside(gateway)
            .start();
        let prometheus = Launch::new("prometheus")
            .args([
                format!("--config.file={settings}"),
                format!("--storage.tsdb.path={}", path("data")),
                format!("--web.listen-address={PROMETHEUS}"),
            ])
            .without_output()
            .inside(gateway)
            .start();
        let monitoring = Self {
            gateway,
            _programs: [prometheus.unwrap(), alertmanager.unwrap()],
            _folder: folder,
        };
        wait_until("Prometheus is ready", || {
            monitoring.get(PROMETHEUS, "/-/ready").0 == 200
        });
        wait_until("Alertmanager is ready", || {
            monitoring.get(ALERTMANAGER, "/-/ready").0 == 200
        });
        wait_until("Prometheus reads the metrics", || {
            monitoring.count("up{job=\"midspan\"} == 1") == 1
        });
        monitoring
    }

    fn get(&self, address: &str, page: &str) -> (u16, String) {
        let address: SocketAddr = address.parse().unwrap();
        let page = page.to_owned();
        let answer = self
            .gateway
            .run(move || client::get(address, &page))
            .unwrap();
        answer.unwrap_or_default()
    }

    /// The number of series that an expression returns.
    #[track_caller]
    pub fn count(&self, expression: &str) -> usize {
        let page = format!("/api/v1/query?query={}", encoded(expression));
        let (status, text) = self.get(PROMETHEUS, &page);
        assert_eq!(status, 200, "{expression}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["data"]["result"].as_array().unwrap().len()
    }

    /// Waits until Alertmanager has this alert.
    #[track_caller]
    pub fn wait_for_alert(&self, name: &str) {
        wait_within(ALERT_LIMIT, &format!("alert {name}"), || {
            self.has_alert(name)
        });
        println!("{name} has fired");
    }

    /// Whether Alertmanager has this alert now.
    pub fn has_alert(&self, name: &str) -> bool {
        let (_, text) = self.get(ALERTMANAGER, "/api/v2/alerts?active=true");
        let alerts: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut alerts = alerts.as_array().into_iter().flatten();
        alerts.any(|alert| alert["labels"]["alertname"] == name)
    }
}

/// An expression as part of a query (RFC 3986, section 2.1).
fn encoded(expression: &str) -> String {
    expression
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

/// The names of the shipped alerts.
pub fn alerts() -> Vec<String> {
    let text = faster_rules();
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}
