//! Mail, DNS over TCP, FTP, messages, streams.

use super::{CURL, PYTHON};
use crate::case::{Case, Sessions};
use crate::gateway::Gateway::Socks5;
use crate::needed::Needed;

const SMTP: &[Needed] = &[
    PYTHON,
    Needed::new(
        "/usr/lib/python3/dist-packages/aiosmtpd",
        "python3-aiosmtpd",
    ),
    Needed::new("swaks", "swaks"),
];
const DNS: &[Needed] = &[
    Needed::new("dnsmasq", "dnsmasq-base"),
    Needed::new("dig", "bind9-dnsutils"),
];
const FTP: &[Needed] = &[
    Needed::new("vsftpd", "vsftpd"),
    Needed::new("lftp", "lftp"),
    CURL,
];
const MQTT: &[Needed] = &[
    Needed::new("mosquitto", "mosquitto"),
    Needed::new("mosquitto_pub", "mosquitto-clients"),
];
const IPERF3: &[Needed] = &[Needed::new("iperf3", "iperf3")];

/// An FTP server that every user may use.
const fn ftp(name: &'static str) -> Case {
    Case::new(name, FTP)
        .several_users()
        .prepare(
            r#"install -d -m 755 "$COMMON/ftp"
            install -d -m 777 "$COMMON/ftp/upload"
            payload 5000000 >"$COMMON/ftp/file""#,
        )
        .server(
            r#"mkdir -p /run/vsftpd/empty
            # The server goes to the user's home, which nobody has.
            sed "s|^\(nobody:.*\):/nonexistent:|\1:$COMMON/ftp:|" /etc/passwd >"$DIR/passwd"
            mount --bind "$DIR/passwd" /etc/passwd
            cat >"$DIR/vsftpd.conf" <<END
listen_ipv6=YES
background=NO
anonymous_enable=YES
ftp_username=nobody
nopriv_user=nobody
anon_root=$COMMON/ftp
write_enable=YES
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
secure_chroot_dir=/run/vsftpd/empty
seccomp_sandbox=NO
connect_from_port_20=YES
xferlog_enable=NO
END
            vsftpd "$DIR/vsftpd.conf" &
            ready 21"#,
        )
}

/// Transfers by lftp. The argument sets the mode of data connections: `on` for passive ones.
macro_rules! lftp {
    ($passive:literal) => {
        concat!(
            r#"payload 3000000 9 >up
            lftp="set ftp:passive-mode "#,
            $passive,
            r#"; set net:max-retries 1; set net:timeout 8; set cmd:fail-exit yes; set ftp:use-mdtm no"
            succeeds timeout 60 lftp -c "$lftp; open ftp://$HOST; cls -1 --size; get file; put -O upload up"
            succeeds digest file "$COMMON/ftp/upload/up"
            rm -f "$COMMON/ftp/upload/up""#
        )
    };
}

pub(super) const CASES: &[Case] = &[
    Case::new("SMTP: swaks, a mail of 5 MB", SMTP)
        .ipv4_only()
        .server(
            r#"cat >"$DIR/server.py" <<'END'
import asyncio, hashlib, os
from email import message_from_bytes
from aiosmtpd.controller import Controller
class Handler:
    async def handle_DATA(self, server, session, envelope):
        parts = message_from_bytes(envelope.content).get_payload()
        attached = parts[-1].get_payload(decode=True)
        with open(os.environ["DIR"] + "/seen", "a") as seen:
            print(envelope.mail_from, envelope.rcpt_tos, hashlib.sha256(attached).hexdigest(), file=seen)
        return "250 taken"
Controller(Handler(), hostname="0.0.0.0", port=587).start()
asyncio.new_event_loop().run_forever()
END
            python3 "$DIR/server.py" &
            ready 587"#,
        )
        .client(
            r#"payload 5000000 >file
            succeeds swaks --silent 3 --server "$SERVER" --port 587 --from a@example.org --to b@example.org \
                --helo client.example.org --attach-type application/octet-stream --attach @file"#,
        ),
    Case::new("SMTP: port 25 is refused by the firewall", &[CURL])
        .sessions(Sessions::None)
        .client(r#"status curl --silent --max-time 20 "smtp://$HOST:25/""#),
    Case::new("dig: 60 TXT records by TCP, one connection kept open", DNS)
        .several_users()
        .server(
            r#"{
                for number in $(seq 60); do echo "txt-record=t$number.test,text of number $number"; done
            } >"$DIR/dnsmasq.conf"
            dnsmasq --keep-in-foreground --conf-file="$DIR/dnsmasq.conf" --no-hosts --no-resolv --user=root --group=root \
                --pid-file="$DIR/dnsmasq.pid" &
            ready 53"#,
        )
        .client(
            r#"seq --format 't%g.test TXT' 60 >names
            dig +tcp +keepopen +short @"$SERVER" -f names | sort | tee answers | wc -l
            digest answers"#,
        ),
    ftp("FTP: passive").client(lftp!("on")),
    ftp("FTP: active, with a firewall that lets the server call")
        .sessions(Sessions::Any)
        .routed()
        .gateway("nft insert rule inet filter forward iifname wan accept")
        .client(lftp!("off")),
    ftp("FTP: passive by curl").explicit(&[Socks5]).client(
        r#"curl --silent --show-error "ftp://$HOST/file" | digest
        payload 2000000 >up
        curl --silent --show-error --upload-file up "ftp://$HOST/upload/by-curl"
        digest "$COMMON/ftp/upload/by-curl"
        rm -f "$COMMON/ftp/upload/by-curl""#,
    ),
    ftp("FTP: passive, conntrack helper, strict forward chain")
        .sessions(Sessions::Any)
        .gateway(HELPER)
        .client(lftp!("on")),
    ftp("FTP: active, conntrack helper, strict forward chain")
        .sessions(Sessions::Any)
        .gateway(HELPER)
        .client(lftp!("off")),
    Case::new("iperf3: upload, -R, --bidir, -P 8", IPERF3)
        .server("iperf3 --server >/dev/null &\nready 5201")
        .client(
            r#"for options in '' -R --bidir '-P 8'; do
                succeeds iperf3 --client "$SERVER" --time 1 $options >out
                tail -n 1 out
            done"#,
        ),
    Case::new("MQTT: keep-alive 5 s, 12 s of idleness, QoS 1", MQTT)
        .server(
            r#"printf 'listener 1883\nallow_anonymous true\nuser root\n' >"$DIR/mosquitto.conf"
            mosquitto --config-file "$DIR/mosquitto.conf" &
            ready 1883"#,
        )
        .client(
            r#"mosquitto_sub -h "$SERVER" -t news -k 5 -q 1 -C 2 -W 30 >heard &
            sleep 1
            mosquitto_pub -h "$SERVER" -t news -q 1 -m first
            sleep 12
            mosquitto_pub -h "$SERVER" -t news -q 1 -m second
            wait $! || echo "mosquitto_sub: exit status $?"
            cat heard"#,
        ),
];

/// A firewall that permits only FTP's control port. The kernel's FTP helper detects the data
/// connections, which then pass too.
const HELPER: &str = r#"nft -f - <<'END'
table inet filter {
    ct helper ftp-standard {
        type "ftp" protocol tcp
    }
    chain helpers {
        type filter hook prerouting priority filter
        tcp dport 21 ct helper set "ftp-standard"
    }
}
flush chain inet filter forward
add rule inet filter forward ct state established,related accept
add rule inet filter forward iifname "acc" oifname "wan" tcp dport 21 accept
END"#;
