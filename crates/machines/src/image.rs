//! The disk image of a release, made from its packages by `mmdebstrap`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::error::{Error, output};
use crate::release::Release;

/// Files for the image, and the scripts that put them there.
const GUEST: [(&str, &str); 5] = [
    ("90-agent.rules", include_str!("guest/90-agent.rules")),
    ("agent", include_str!("guest/agent")),
    ("agent.service", include_str!("guest/agent.service")),
    ("finish", include_str!("guest/finish")),
    ("settle", include_str!("guest/settle")),
];

/// The packages in an image: an ordinary system with its kernel, and the programs that tests run.
const PACKAGES: [&str; 31] = [
    "ca-certificates",
    "conntrack",
    "curl",
    "dbus",
    "ethtool",
    "haproxy",
    "ifupdown",
    "initramfs-tools",
    "iperf3",
    "iproute2",
    "iptables",
    "iputils-ping",
    "jq",
    "kmod",
    "libnginx-mod-stream",
    "linux-image-amd64",
    "lsof",
    "netcat-openbsd",
    "nftables",
    "nginx-light",
    "openssl",
    "procps",
    "psmisc",
    "socat",
    "strace",
    "systemd",
    "systemd-sysv",
    "tcpdump",
    "udev",
    "wireguard-tools",
    "zstd",
];

/// A release's disk, kernel and initial RAM disk.
#[derive(Debug)]
pub struct Image {
    /// The release.
    pub release: Release,
    /// The folder of its files.
    pub folder: PathBuf,
    /// A name for this state of the image: two images of one recipe have the same.
    pub recipe: String,
}

impl Image {
    /// The image of a release in a folder. It is made unless it is there from the same recipe.
    pub fn get(release: Release, folder: &Path, say: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let sources = release.sources()?;
        let mut digest = Sha256::new();
        for (name, text) in GUEST {
            digest.update(name);
            digest.update(text);
        }
        digest.update(PACKAGES.join(" "));
        let recipe = digest.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let image = Self {
            release,
            folder: folder.join(release.name()),
            recipe,
        };
        let made = image.folder.join("recipe");
        if fs::read_to_string(&made).is_ok_and(|found| found == image.recipe) {
            return Ok(image);
        }
        say(&format!(
            "making an image of {} from packages",
            release.name()
        ));
        let _ = fs::remove_dir_all(&image.folder);
        image.make(&sources)?;
        fs::write(&made, &image.recipe).map_err(Error::file(&made))?;
        Ok(image)
    }

    /// One of the files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn make(&self, sources: &str) -> Result<(), Error> {
        // Packages' scripts change owners and make devices.
        if output(Command::new("id").arg("-u"))? != b"0\n" {
            return Err(Error::NotRoot);
        }
        let guest = self.folder.join("guest");
        fs::create_dir_all(&guest).map_err(Error::file(&guest))?;
        for (name, text) in GUEST {
            let file = guest.join(name);
            fs::write(&file, text).map_err(Error::file(&file))?;
            let permissions = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&file, permissions).map_err(Error::file(&file))?;
        }
        let list = self.file("sources.list");
        fs::write(&list, sources).map_err(Error::file(&list))?;
        let (guest, folder) = (guest.display(), self.folder.display());
        output(
            Command::new("mmdebstrap")
                .args(["--mode=root", "--format=null", "--variant=minbase"])
                .arg("--aptopt=Acquire::Languages \"none\"")
                .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
                .arg("--dpkgopt=path-include=/usr/share/doc/midspan*")
                .arg("--dpkgopt=path-exclude=/usr/share/man/*")
                .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
                .arg("--dpkgopt=force-unsafe-io")
                .arg(format!("--essential-hook='{guest}/settle' \"$1\""))
                .arg(format!(
                    "--customize-hook='{guest}/finish' \"$1\" '{guest}' '{folder}'"
                ))
                .arg(format!("--include={}", PACKAGES.join(",")))
                .arg(self.release.name())
                .arg("/dev/null")
                .arg(&list),
        )?;
        Ok(())
    }
}
