//! What a program of this process leaves to the next one (an upgrade): pure data.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use midspan_document::Source;
use midspan_gateway::initial_window::Places;
use midspan_gateway::interception::{Adopted, FormerSessions};
use midspan_linux::execution;
use midspan_service::logging::LogLevel;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::drained::Drained;
use super::listening::Open;
use super::numbers_in_force::NumbersInForce;
use super::slots::Slots;
use crate::Error;
use crate::configuration::Configuration;

/// The version of the format. A new optional field is no new version.
pub(super) const FORMAT: u32 = 1;
/// The longest text, in bytes.
const LIMIT: u64 = 8 << 20;

/// The state of the helper, as one program leaves it to the next one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Inheritance {
    /// The version of the format.
    pub format: u32,
    /// The version of the program that has written this.
    pub version: String,
    /// The program that is to be executed.
    pub program: PathBuf,
    /// The number of this upgrade.
    pub upgrade: u64,
    /// Why the new program has failed, so that the former one continues.
    pub failure: Option<String>,
    /// The configuration file.
    pub file: PathBuf,
    /// The log level, in place of the file's.
    pub log_level: Option<LogLevel>,
    /// The text of the configuration in force. The file may be another one meanwhile.
    pub configuration: String,
    /// The values in force that the text may not have.
    #[serde(default)]
    pub numbers: Option<NumbersInForce>,
    /// The process id of the relay.
    pub relay: u32,
    /// Relays of former programs.
    pub former: Vec<FormerRelay>,
    /// The addresses of the relay's listeners.
    pub open: Vec<Open>,
    /// The numbers of transparent listeners.
    pub slots: Slots,
    /// Interfaces of transparent listeners, also of removed ones.
    pub interfaces: BTreeSet<String>,
    /// Prefixes whose new connections pass untouched.
    pub bypasses: Vec<IpNet>,
    /// What an operator drains.
    pub drained: Drained,
    /// The marks of initial windows.
    pub places: Option<Places>,
    /// The rules in force.
    pub rules: Option<InheritedRules>,
    /// The control socket; its listening socket is one of the descriptors.
    pub control: Option<PathBuf>,
    /// The address of the admin listener; its listening socket is one of the descriptors.
    pub admin: Option<SocketAddr>,
    /// How long the proxy has been ready.
    pub uptime: Duration,
    /// Reloads that have succeeded.
    pub reloads: u64,
    /// Reloads that have failed.
    pub reloads_failed: u64,
}

/// A relay of a former program, which drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FormerRelay {
    /// Its process id.
    pub id: u32,
    /// How long it may take to end.
    pub left: Duration,
}

/// The rules in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InheritedRules {
    /// What the kernel's rules do not show.
    pub adopted: Adopted,
    /// Marks that sockets towards clients may have.
    pub client_leg_marks: BTreeSet<u32>,
    /// Marks that sockets towards servers may have.
    pub server_leg_marks: BTreeSet<u32>,
    /// Sessions that began under other marks and zones.
    #[serde(default)]
    pub former_sessions: Vec<FormerSessions>,
}

impl Inheritance {
    /// Writes it into a file in memory.
    ///
    /// # Errors
    /// Those of `memfd_create(2)` and `write(2)`.
    pub fn write(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("midspan-upgrade", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads it from the beginning of a file.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn read(mut file: impl Read + Seek) -> io::Result<Self> {
        file.rewind()?;
        let mut text = Vec::new();
        file.take(LIMIT + 1).read_to_end(&mut text)?;
        Self::parse(&text)
    }

    /// Reads a text.
    pub fn parse(text: &[u8]) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        if text.len() as u64 > LIMIT {
            return Err(wrong(
                "the state of the former program is too long".to_owned(),
            ));
        }
        /// The part that every version has.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let Head { format } = serde_json::from_slice(text)?;
        if format != FORMAT {
            return Err(wrong(format!(
                "the state of the former program has format {format}, and this program reads format {FORMAT}"
            )));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// Executes `program`, which inherits this state. The descriptors are those of the present program, of its relay, of
    /// the relays of former programs, and of the sockets of the control socket and of the admin listener. `may_execute`
    /// is called last, when signals wait for the next program.
    ///
    /// # Errors
    /// Always one: it returns only if the program is not executed.
    pub fn execute<'a>(
        &self,
        program: BorrowedFd<'_>,
        (present, relay): (BorrowedFd<'a>, BorrowedFd<'a>),
        former: impl Iterator<Item = BorrowedFd<'a>>,
        sockets: [Option<BorrowedFd<'a>>; 2],
        may_execute: impl FnOnce() -> io::Result<()>,
    ) -> io::Error {
        let state = match self.write() {
            Ok(state) => state,
            Err(error) => return error,
        };
        // The order in which the next program takes them.
        let mut descriptors = vec![state.as_fd(), present, relay];
        for descriptor in former.chain(sockets.into_iter().flatten()) {
            descriptors.push(descriptor);
        }
        midspan_log::finish();
        execution::execute(program, std::env::args_os(), &descriptors, may_execute)
    }

    /// The configuration in force.
    ///
    /// # Errors
    /// This program does not understand the text.
    pub fn configuration(&self) -> Result<Configuration, Error> {
        let source = Source::of_file(&self.file, self.configuration.as_str());
        let configuration = Configuration::read(&source);
        let mut configuration = configuration.map_err(midspan_document::Error::from)?;
        if let Some(numbers) = &self.numbers {
            let applied = numbers.apply(&mut configuration);
            let wrong = |error| io::Error::new(ErrorKind::InvalidData, error);
            applied.map_err(|error| Error::system("take over the marks")(wrong(error)))?;
        }
        Ok(configuration)
    }

    /// How many descriptors come with it: this text, the former program, and the connections and sockets.
    pub fn descriptors(&self) -> usize {
        let sockets = usize::from(self.control.is_some()) + usize::from(self.admin.is_some());
        3 + self.former.len() + sockets
    }
}

/// For fuzz targets: a state that was read can be written, and read again.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzzed(text: &[u8]) {
    if let Ok(state) = Inheritance::parse(text) {
        let again = serde_json::to_vec(&state).map(|text| Inheritance::parse(&text));
        assert!(matches!(again, Ok(Ok(_))));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn inheritance() -> Inheritance {
        Inheritance {
            format: FORMAT,
            version: "0.2.0".to_owned(),
            program: "/usr/bin/midspan".into(),
            upgrade: 1,
            failure: None,
            file: "/etc/midspan/midspan.toml".into(),
            log_level: None,
            configuration: "[relay]\n".to_owned(),
            numbers: Some(NumbersInForce {
                threads: 2,
                mask: 0xf00,
                window_table: 1,
                window_priority: 2,
                table: "midspan".to_owned(),
                routing_table: 3,
                rule_priority: 4,
                forward_priority: 5,
                zone: 6,
                queue: 7,
            }),
            relay: 7,
            former: vec![FormerRelay {
                id: 6,
                left: Duration::from_secs(30),
            }],
            open: vec![Open {
                name: "web".to_owned(),
                is_transparent: false,
                address: "127.0.0.1:80".parse().unwrap(),
                window: Some(40),
            }],
            slots: Slots::default(),
            interfaces: BTreeSet::from(["eth1".to_owned()]),
            bypasses: vec!["192.0.2.0/24".parse().unwrap()],
            drained: Drained::default(),
            places: Some(Places::default()),
            rules: Some(InheritedRules {
                adopted: Adopted {
                    taking: true,
                    early_demux_was_on: true,
                },
                client_leg_marks: BTreeSet::from([1 << 24]),
                server_leg_marks: BTreeSet::new(),
                former_sessions: vec![FormerSessions {
                    mask: 0xf0,
                    zone: 10,
                    client_leg_marks: BTreeSet::from([0xf0]),
                    server_leg_marks: BTreeSet::from([0xe0]),
                }],
            }),
            control: Some("/run/midspan/control.sock".into()),
            admin: Some("127.0.0.1:9464".parse().unwrap()),
            uptime: Duration::from_secs(100),
            reloads: 1,
            reloads_failed: 0,
        }
    }

    #[test]
    fn the_next_program_reads_what_was_written() {
        let written = inheritance();
        let read = Inheritance::read(written.write().unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{written:?}"));
        assert_eq!(read.descriptors(), 6);
    }

    #[test]
    fn another_format_is_refused_by_its_number() {
        let mut value = serde_json::to_value(inheritance()).unwrap();
        value["format"] = 2.into();
        value["relay"] = "another type".into();
        let error = Inheritance::parse(&serde_json::to_vec(&value).unwrap()).unwrap_err();
        assert!(error.to_string().contains("format 2"), "{error}");
    }

    #[test]
    fn a_text_that_is_cut_or_too_long_is_refused() {
        let text = serde_json::to_vec(&inheritance()).unwrap();
        for length in 0..text.len() {
            assert!(Inheritance::parse(&text[..length]).is_err(), "{length}");
        }
        let long = vec![b' '; usize::try_from(LIMIT).unwrap() + 1];
        assert!(Inheritance::parse(&long).is_err());
    }
}
