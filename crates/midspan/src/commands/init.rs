//! `midspan init`: writes a first configuration.

mod two_sided;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use clap::CommandFactory;
use clap::error::ErrorKind as UsageError;
use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_report::{Alignment, Cell, Table};
use miette::{IntoDiagnostic, miette};

use super::Outcome;
use super::check;
use crate::arguments::{Arguments, CheckOptions, InitOptions};
use crate::output_arguments::Output;
use crate::printing;

/// An address of the Internet, of a root name server. Packets to it would take the default route;
/// none is sent.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4));

/// An interface of this machine.
struct Interface {
    name: String,
    addresses: Vec<String>,
    has_default_route: bool,
}

/// Writes the configuration and checks it.
pub fn init(options: &InitOptions) -> Outcome {
    let interfaces = interfaces().into_diagnostic()?;
    if options.interface.is_empty() {
        let text = format!(
            "name the interface where the clients are\n\n{}\nFor example: midspan init --interface {}",
            table(&interfaces).to_text(None),
            likely(&interfaces)
        );
        Arguments::command()
            .error(UsageError::MissingRequiredArgument, text)
            .exit();
    }
    for name in &options.interface {
        require(name, &interfaces)?;
    }
    let text = match options.link.two_sided {
        Some(end) => two_sided::configuration(end, &options.link, &quoted(&options.interface)),
        None => configuration(&options.interface),
    };
    write_new(&options.output, &text)?;
    printing::line(format_args!("wrote {}", options.output.display()));
    for name in &options.interface {
        if interfaces
            .iter()
            .any(|one| one.name == *name && one.has_default_route)
        {
            printing::warning(format_args!(
                "note: {name} has the default route. Clients are usually at another interface: \
                 Midspan intercepts the connections that arrive there."
            ));
        }
    }
    let is_met = check::check(&CheckOptions {
        config: options.output.clone(),
        rate: None,
        sessions: None,
        output: Output { json: false },
    })?;
    printing::note(match is_met {
        true => "next: systemctl enable --now midspan (or, in a terminal: midspan run)",
        false => "next: fix what is missing, and run midspan check",
    });
    Ok(is_met)
}

/// The text of the file: the shortest configuration of a transparent gateway.
fn configuration(interfaces: &[String]) -> String {
    format!(
        "# Intercepts the TCP connections of clients behind these interfaces. Every key is in\n\
         # docs/configuration.md.\n\
         [[listener]]\n\
         name = \"gateway\"\n\
         mode = \"transparent\"\n\
         interfaces = [{}]\n\
         policy = \"auto\"\n",
        quoted(interfaces)
    )
}

/// The names as entries of a list in TOML.
fn quoted(interfaces: &[String]) -> String {
    let names: Vec<String> = interfaces.iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

/// Writes a file that does not exist yet, with its folder.
fn write_new(path: &Path, text: &str) -> miette::Result<()> {
    let failed = |error: std::io::Error| {
        let help = match error.kind() {
            ErrorKind::AlreadyExists => {
                "midspan init never writes over a file. Edit the file, move it away, or choose \
                 another name with --output"
            }
            ErrorKind::PermissionDenied => {
                "run midspan init as root, or choose a file with --output"
            }
            _ => "choose another file with --output",
        };
        miette!(help = help, "cannot write {}: {error}", path.display())
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(failed)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Half a file would be refused by the next start.
        let _ = fs::remove_file(path);
        return Err(failed(error));
    }
    Ok(())
}

/// All interfaces but the loopback.
fn interfaces() -> Result<Vec<Interface>, NetlinkError> {
    let netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    // Without a default route, no interface has it.
    let towards_far = netlink.interface_towards(FAR).ok();
    let all = midspan_proxy::check::interfaces().into_iter();
    Ok(all
        .filter(|name| name != "lo")
        .map(|name| Interface {
            addresses: addresses
                .iter()
                .filter(|(interface, address)| *interface == name && !is_link_local(address.addr()))
                .map(|(_, address)| address.to_string())
                .collect(),
            has_default_route: towards_far.as_ref() == Some(&name),
            name,
        })
        .collect())
}

const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The interface where clients probably are, or a name that stands for it.
fn likely(interfaces: &[Interface]) -> &str {
    interfaces
        .iter()
        .find(|one| !one.has_default_route && !one.addresses.is_empty())
        .map_or("eth1", |one| &one.name)
}

fn table(interfaces: &[Interface]) -> Table {
    let mut table = Table::new("");
    for heading in ["interface", "addresses", "default route"] {
        table.add_column(heading, Alignment::Left);
    }
    for one in interfaces {
        let route = if one.has_default_route { "yes" } else { "" };
        let addresses = one.addresses.join(", ");
        let texts = [one.name.as_str(), &addresses, route];
        table.add_row(texts.into_iter().map(Cell::new).collect());
    }
    table
}

/// An interface must exist. A name that ends in `*` may stand for interfaces that come later.
fn require(name: &str, interfaces: &[Interface]) -> miette::Result<()> {
    if name.ends_with('*') || interfaces.iter().any(|one| one.name == name) {
        return Ok(());
    }
    let names = interfaces.iter().map(|one| one.name.as_str());
    let near = midspan_document::nearest(name, names)
        .map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
    Err(miette!(
        help = table(interfaces).to_text(None),
        "this machine has no interface \"{name}\"{near}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_configuration() {
        for interfaces in [vec!["eth1"], vec!["eth1", "ppp*"]] {
            let interfaces: Vec<String> = interfaces.into_iter().map(str::to_owned).collect();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("etc/midspan/midspan.toml");
            write_new(&path, &configuration(&interfaces)).unwrap();
            let configuration = midspan_proxy::configuration::Configuration::load(&path).unwrap();
            let (_, transparent) = configuration.transparent().next().unwrap();
            assert_eq!(transparent.interfaces, interfaces);
        }
    }

    #[test]
    fn a_file_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("midspan.toml");
        fs::write(&path, "mine").unwrap();
        let error = write_new(&path, "new").unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        // Nor through a link that leads nowhere yet.
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        write_new(&link, "new").unwrap_err();
        assert!(!folder.path().join("elsewhere").exists());
    }
}
