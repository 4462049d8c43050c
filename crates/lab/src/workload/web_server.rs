//! A real web server (nginx) with files of given sizes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, Program as Running};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::wait_until_listening;
use crate::LabError;
use crate::error::at;
use crate::programs::Program;

/// nginx's port.
pub const PORT: u16 = 80;

/// The path of uploads in the URL.
pub const UPLOADS: &str = "/uploads/";

/// The file in which a server with the folder `folder` stores a flow's upload.
#[must_use]
pub fn stored(folder: &Path, flow: usize) -> PathBuf {
    folder.join("uploads").join(format!("{flow}.bin"))
}

/// Files of pseudo-random bytes, one for each size, so that compression or repetition on the path
/// would be noticed.
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// Writes a file for each size in bytes.
    pub fn write(folder: PathBuf, sizes: &BTreeSet<u64>) -> Result<Self, LabError> {
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let files = Self { folder };
        for &size in sizes {
            let path = files.path(size);
            write_random(&path, size).map_err(at(&path))?;
        }
        Ok(files)
    }

    /// The file of `size` bytes.
    #[must_use]
    pub fn path(&self, size: u64) -> PathBuf {
        self.folder.join(Self::name(size))
    }

    /// The name of a file, as in the URL.
    #[must_use]
    pub fn name(size: u64) -> String {
        format!("{size}.bin")
    }
}

fn write_random(path: &Path, size: u64) -> std::io::Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(size);
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut left = size;
    let mut block = [0; 8192];
    while left > 0 {
        random.fill_bytes(&mut block);
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    file.flush()
}

/// A running nginx; it is stopped when this value is dropped.
pub struct WebServer {
    _program: Running,
}

impl WebServer {
    /// Starts nginx on `host` with `files`; its own files are written to `folder`.
    pub fn start(
        host: &NetworkNamespace,
        address: IpAddr,
        files: &Files,
        folder: &Path,
    ) -> Result<Self, LabError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let configuration = folder.join("nginx.conf");
        fs::write(&configuration, configuration_text(files, folder)).map_err(at(&configuration))?;
        let launch = Launch::new(Program::Nginx.command()?.get_program())
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(&configuration)
            // Without this option, nginx opens the system's log, which only root may write.
            .args(["-e", "stderr"])
            .folder(folder)
            .log_file("error.log")
            .without_output()
            .inside(host)
            .grace(Duration::from_secs(1));
        let mut program = launch.start()?;
        wait_until_listening(host, SocketAddr::new(address, PORT), "nginx", &mut program)?;
        Ok(Self { _program: program })
    }
}

/// One process and one user, because a user namespace has no other user.
fn configuration_text(files: &Files, folder: &Path) -> String {
    let files = files.folder.display();
    let folder = folder.display();
    format!(
        "user root root;\n\
         daemon off;\n\
         master_process off;\n\
         pid {folder}/nginx.pid;\n\
         error_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         \x20   access_log off;\n\
         \x20   sendfile on;\n\
         \x20   tcp_nodelay on;\n\
         \x20   keepalive_requests 100000;\n\
         \x20   client_body_temp_path {folder}/body;\n\
         \x20   proxy_temp_path {folder}/proxy;\n\
         \x20   fastcgi_temp_path {folder}/fastcgi;\n\
         \x20   uwsgi_temp_path {folder}/uwsgi;\n\
         \x20   scgi_temp_path {folder}/scgi;\n\
         \x20   server {{\n\
         \x20       listen {PORT} backlog=4096;\n\
         \x20       listen [::]:{PORT} backlog=4096;\n\
         \x20       root {files};\n\
         \x20       location {UPLOADS} {{\n\
         \x20           root {folder};\n\
         \x20           dav_methods PUT;\n\
         \x20           create_full_put_path on;\n\
         \x20           client_max_body_size 0;\n\
         \x20       }}\n\
         \x20   }}\n\
         }}\n"
    )
}
