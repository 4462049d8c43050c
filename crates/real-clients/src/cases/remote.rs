//! Remote shells and copies: OpenSSH and the programs that use it.

use super::{CURL, NC, NGINX};
use crate::case::Case;
use crate::gateway::Gateway::{Http, Socks5};
use crate::needed::Needed;

const SSH: &[Needed] = &[
    Needed::new("ssh", "openssh-client"),
    Needed::new("sshd", "openssh-server"),
    NC,
];

const GIT: Needed = Needed::new("git", "git");
const GIT_SSH: &[Needed] = &[SSH[0], SSH[1], NC, GIT];
const GIT_HTTP: &[Needed] = &[
    GIT,
    CURL,
    NGINX,
    Needed::new("fcgiwrap", "fcgiwrap"),
    Needed::new("/usr/lib/git-core/git-http-backend", "git"),
];
const RSYNC: &[Needed] = &[SSH[0], SSH[1], NC, Needed::new("rsync", "rsync")];

/// An SSH server. The client is configured by the macro `with_ssh`.
const fn ssh(name: &'static str, needs: &'static [Needed]) -> Case {
    Case::new(name, needs)
        .several_users()
        .prepare(
            r#"ssh-keygen -q -t ed25519 -N '' -f "$COMMON/host"
            ssh-keygen -q -t ed25519 -N '' -f "$COMMON/user"
            echo "server $(cat "$COMMON/host.pub")" >"$COMMON/known_hosts"
            payload 20000000 >"$COMMON/file""#,
        )
        .server(
            r#"mkdir /run/sshd
            cat >"$DIR/sshd_config" <<END
HostKey $COMMON/host
AuthorizedKeysFile $COMMON/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PrintMotd no
MaxStartups 100
Subsystem sftp internal-sftp
END
            "$(command -v sshd)" -D -e -f "$DIR/sshd_config" &
            ready 22"#,
        )
}

/// Configures the client. Programs that do not accept an IPv6 address as a host name use the alias
/// `server`.
macro_rules! with_ssh {
    ($script:literal) => {
        concat!(
            r#"cat >config <<END
Host *
    HostName $SERVER
    User root
    IdentityFile $COMMON/user
    HostKeyAlias server
    UserKnownHostsFile $COMMON/known_hosts
    LogLevel ERROR
END
            case "$VIA" in
                socks5) echo "ProxyCommand nc.openbsd -X 5 -x $PROXY_HOST:$PROXY_PORT %h %p" >>config ;;
                http) echo "ProxyCommand nc.openbsd -X connect -x $PROXY_HOST:$PROXY_PORT %h %p" >>config ;;
            esac
            ssh() { command ssh -F "$PWD/config" "$@"; }
            "#,
            $script
        )
    };
}

/// Makes a repository, clones it from this URL, pushes to it, and compares the result.
macro_rules! git {
    ($url:literal) => {
        concat!(
            r#"repository="$PWD/server.git"
            git config --global user.name somebody
            git config --global user.email somebody@example.org
            git config --global init.defaultBranch main
            git config --global http.postBuffer 100000
            git config --global safe.directory '*'
            export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
            git init --quiet --bare "$repository"
            git --git-dir "$repository" config http.receivepack true
            git init --quiet first
            payload 3000000 >first/file
            git -C first add file
            git -C first commit --quiet --message one
            git -C first push --quiet "$repository" main
            git clone --quiet "#,
            $url,
            r#" clone
            digest clone/file
            payload 4000000 500 >clone/another
            git -C clone add another
            git -C clone commit --quiet --message two
            succeeds git -C clone push --quiet origin main
            git --git-dir "$repository" rev-parse main
            git --git-dir "$repository" fsck --full
            git --git-dir "$repository" cat-file blob main:another | digest"#
        )
    };
}

pub(super) const CASES: &[Case] = &[
    ssh("ssh: command, exit status, terminal, 20 MB by standard input", SSH)
        .explicit(&[Socks5, Http])
        .client(with_ssh!(
            r#"status ssh server 'echo out; exit 7'
            status ssh -tt server 'test -t 0 && echo a terminal'
            ssh server 'sha256sum | cut -c1-24' <"$COMMON/file"
            ssh server "cat '$COMMON/file'" | digest
            ssh server 'cat' </dev/null | wc -c"#
        )),
    ssh("ssh: forwarding -L, -R, -D", SSH).client(with_ssh!(
        r#"at server socat -U TCP-LISTEN:7000,bind=127.0.0.1,fork,reuseaddr OPEN:"$COMMON/file",rdonly &
        ssh -N -L 7001:127.0.0.1:7000 -R 127.0.0.1:7002:127.0.0.1:7003 -D 7004 server &
        until_true at server bash -c "ss -Hltn 'sport = :7000' | grep -q ."
        until_true listens 7001
        until_true listens 7004
        until_true at server bash -c "ss -Hltn 'sport = :7002' | grep -q ."
        nc.openbsd -d 127.0.0.1 7001 | digest
        socat -U TCP-LISTEN:7003,bind=127.0.0.1,reuseaddr OPEN:"$COMMON/file",rdonly &
        until_true listens 7003
        at server nc.openbsd -d 127.0.0.1 7002 | digest
        nc.openbsd -d -X 5 -x 127.0.0.1:7004 127.0.0.1 7000 | digest"#
    )),
    ssh("ssh: ControlMaster with five sessions at once", SSH).client(with_ssh!(
        r#"ssh -M -N -f -S "$PWD/master" server
        for number in 1 2 3 4 5; do
            ssh -S "$PWD/master" server "cat '$COMMON/file'" | digest >"$number" &
            jobs="${jobs-} $!"
        done
        wait $jobs
        cat [1-5]
        ssh -S "$PWD/master" -O exit server 2>/dev/null
        status ssh -S "$PWD/master" -O check server 2>/dev/null"#
    )),
    ssh("scp: up and down", SSH).explicit(&[Socks5, Http]).client(with_ssh!(
        r#"scp -q -F config -o RekeyLimit=5M "$COMMON/file" "server:$PWD/up"
        scp -q -F config "server:$PWD/up" down
        digest up
        digest down"#
    )),
    ssh("sftp: put, get, ls, rm", SSH).client(with_ssh!(
        r#"printf '%s\n' "cd $PWD" "put $COMMON/file up" "ls -1" "get up down" "rm up" "ls -1 up" >batch
        status sftp -q -F config -b batch server
        digest down"#
    )),
    ssh("rsync: up, --delete, an interrupted one goes on", RSYNC)
    .client(with_ssh!(
        r#"mkdir from
        for number in $(seq 20); do payload 300000 "$number" >"from/$number"; done
        shell="ssh -F $PWD/config"
        rsync --archive --rsh "$shell" from/ "server:$PWD/to/"
        cat to/* | digest
        rm from/7
        rsync --archive --delete --rsh "$shell" from/ "server:$PWD/to/"
        ls to | wc -l
        status timeout --signal INT 1 rsync --bwlimit 2000 --partial --inplace --rsh "$shell" \
            "$COMMON/file" "server:$PWD/large" 2>/dev/null
        rsync --append-verify --rsh "$shell" "$COMMON/file" "server:$PWD/large"
        digest large"#
    )),
    ssh("git: clone and push by ssh", GIT_SSH)
        .explicit(&[Socks5, Http])
        .client(concat!(
            with_ssh!(
                r#"export GIT_SSH_COMMAND="ssh -F $PWD/config"
            "#
            ),
            git!(r#""ssh://server$repository""#)
        )),
    Case::new("git: clone and push by git://", &[GIT])
        .server(
            r#"git daemon --reuseaddr --base-path=/ --export-all --enable=receive-pack \
                --listen=0.0.0.0 --listen=:: &
            ready 9418"#,
        )
        .client(git!(r#""git://$HOST$repository""#)),
    Case::new("git: clone and push by http, chunked", GIT_HTTP)
        .explicit(&[Socks5, Http])
        .server(
            r#"git config --global http.receivepack true
            git config --global safe.directory '*'
            fcgiwrap -f -s "unix:$DIR/fcgi.sock" &
            cat >"$DIR/nginx.conf" <<END
user root;
daemon off;
pid $DIR/nginx.pid;
error_log stderr;
events { }
http {
    access_log off;
    server {
        listen 80;
        listen [::]:80;
        client_max_body_size 1g;
        client_body_temp_path $DIR/body;
        location / {
            fastcgi_pass unix:$DIR/fcgi.sock;
            fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;
            fastcgi_param GIT_HTTP_EXPORT_ALL 1;
            fastcgi_param GIT_PROJECT_ROOT /;
            fastcgi_param HOME $DIR;
            fastcgi_param PATH_INFO \$uri;
            fastcgi_param REQUEST_METHOD \$request_method;
            fastcgi_param QUERY_STRING \$query_string;
            fastcgi_param CONTENT_TYPE \$content_type;
            fastcgi_param CONTENT_LENGTH \$content_length;
            fastcgi_param HTTP_CONTENT_ENCODING \$http_content_encoding;
        }
    }
}
END
            nginx -e stderr -c "$DIR/nginx.conf" &
            ready 80"#,
        )
        .client(git!(r#""http://$HOST$repository""#)),
];
