//! nginx's stream module, from Debian.

use std::fmt::Write as _;
use std::path::Path;

use midspan_lab::programs::Program;
use midspan_testbed::program::Launch;

use crate::Failure;

/// The path of the module in Debian.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Starts nginx with default settings, except for the number of connections and for half-closed
/// connections: without this setting nginx would close both directions, and the server's count
/// would be lost.
pub fn launch(folder: &Path) -> Result<Launch<'static>, Failure> {
    if !Path::new(MODULE).exists() {
        return Err(format!("{MODULE} is missing: apt install libnginx-mod-stream").into());
    }
    let mut text = format!(
        "load_module {MODULE};\nuser root root;\nworker_processes auto;\ndaemon off;\n\
         pid {0}/nginx.pid;\nerror_log stderr;\nworker_rlimit_nofile 20000;\n\
         events {{ worker_connections 20000; }}\nstream {{\n  proxy_half_close on;\n",
        folder.display()
    );
    for (from, to) in super::forwards() {
        writeln!(text, "  server {{ listen {from}; proxy_pass {to}; }}")?;
    }
    text.push_str("}\n");
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text)?;
    let program = Program::Nginx.command()?;
    let launch = Launch::new(program.get_program()).args(["-e", "stderr", "-p"]);
    Ok(launch.arg(folder).arg("-c").arg(file))
}
