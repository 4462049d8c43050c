//! `make install`: every file that an installed unit names is installed.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::path::{Path, PathBuf};
use std::process::Command;

const MIDSPAN: &str = env!("CARGO_BIN_EXE_midspan");

/// Installs this build under `destination`.
fn install(destination: &Path, prefix: &str) {
    let output = Command::new("make")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .arg("install")
        .arg(format!("DESTDIR={}", destination.display()))
        .arg(format!("PREFIX={prefix}"))
        .arg(format!("PROGRAM={MIDSPAN}"))
        // Options of the `make` that runs this test are not for this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// The values of a unit's keys.
fn values(unit: &str, is_key: impl Fn(&str) -> bool) -> Vec<&str> {
    let settings = unit.lines().filter_map(|line| line.split_once('='));
    let of_keys = settings.filter(|(key, _)| is_key(key));
    of_keys.map(|(_, value)| value).collect()
}

/// The programs in the values of a unit's keys, such as `ExecStopPost=-/usr/bin/midspan cleanup`.
fn programs(unit: &str, is_key: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let commands = values(unit, is_key).into_iter();
    let words = commands.filter_map(|command| command.split_whitespace().next());
    words
        .map(|word| PathBuf::from(word.trim_start_matches('-')))
        .collect()
}

/// The file of a page in `Documentation=`, such as `man:midspan(1)` or `file:///usr/share/doc/x`.
fn page(uri: &str, prefix: &str) -> PathBuf {
    if let Some(file) = uri.strip_prefix("file://") {
        return PathBuf::from(file);
    }
    let page = uri.strip_prefix("man:").unwrap();
    let (name, section) = page.trim_end_matches(')').split_once('(').unwrap();
    Path::new(prefix).join(format!("share/man/man{section}/{name}.{section}"))
}

#[test]
fn an_installed_unit_names_only_installed_files() {
    for prefix in ["/usr/local", "/usr", "/opt/mid-span.1"] {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path(), prefix);
        let inside = |file: &Path| folder.path().join(file.strip_prefix("/").unwrap());
        let units = inside(&Path::new(prefix).join("lib/systemd/system"));
        let mut seen = 0;
        for unit in std::fs::read_dir(units).unwrap() {
            let unit = unit.unwrap().path();
            if unit
                .extension()
                .is_none_or(|extension| extension != "service")
            {
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&unit).unwrap();
            assert!(!programs(&text, |key| key == "ExecStart").is_empty());
            if unit.ends_with("midspan.service") {
                // Without the right path here, `systemctl reload` fails.
                assert!(!programs(&text, |key| key == "ExecReload").is_empty());
            }
            for program in programs(&text, |key| key.starts_with("Exec")) {
                assert_eq!(program, Path::new(prefix).join("bin/midspan"), "{unit:?}");
                assert!(inside(&program).is_file(), "{program:?} of {unit:?}");
            }
            let documentation = values(&text, |key| key == "Documentation").join(" ");
            assert!(!documentation.is_empty(), "{unit:?}");
            for uri in documentation.split_whitespace() {
                let page = page(uri, prefix);
                assert!(inside(&page).is_file(), "{page:?} of {unit:?}");
            }
        }
        assert!(seen > 0);
    }
}
