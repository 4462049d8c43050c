//! Web clients.

use super::{CURL, NGINX, OPENSSL};
use crate::case::{Case, Sessions};
use crate::gateway::Gateway::{Http, Socks5};
use crate::needed::Needed;

const WEB: &[Needed] = &[CURL, NGINX, OPENSSL];
const WGET: &[Needed] = &[NGINX, OPENSSL, Needed::new("wget", "wget")];

const AB: &[Needed] = &[Needed::new("ab", "apache2-utils"), NGINX, OPENSSL];
const H2LOAD: &[Needed] = &[Needed::new("h2load", "nghttp2-client"), NGINX, OPENSSL];
const WRK: &[Needed] = &[Needed::new("wrk", "wrk"), NGINX, OPENSSL];
const NODE: &[Needed] = &[Needed::new("node", "nodejs"), NGINX, OPENSSL];
const JAVA: &[Needed] = &[Needed::new("javac", "default-jdk-headless"), NGINX, OPENSSL];
const CHROMIUM: &[Needed] = &[Needed::new("chromium", "chromium"), NGINX, OPENSSL];
const FIREFOX: &[Needed] = &[Needed::new("firefox-esr", "firefox-esr"), NGINX, OPENSSL];
const APT: &[Needed] = &[
    Needed::new("apt-get", "apt"),
    Needed::new("apt-ftparchive", "apt-utils"),
    NGINX,
    OPENSSL,
];

/// nginx with files, by HTTP and by TLS with HTTP/2.
const fn web(name: &'static str, needs: &'static [Needed]) -> Case {
    Case::new(name, needs)
        .prepare("certificate\nweb_files")
        .server("web_server")
}

pub(super) const CASES: &[Case] = &[
    web("curl: 100 URLs over one connection", WEB)
        .explicit(&[Socks5])
        .client(
            r#"curl --silent --show-error --output '#1.txt' --write-out '%{http_code} %{num_connects}\n' \
                "http://$HOST/small/[1-100].txt" | sort | uniq -c
            cat *.txt | digest"#,
        ),
    web("curl: 100 URLs", WEB).explicit(&[Http]).client(
        r#"curl --silent --show-error --output '#1.txt' --write-out '%{http_code}\n' \
            "http://$HOST/small/[1-100].txt" | sort | uniq -c
        cat *.txt | digest"#,
    ),
    web("curl: 30 transfers at a time", WEB)
        .explicit(&[Socks5, Http])
        .client(
            r#"curl --silent --show-error --parallel --parallel-max 30 --output '#1.txt' \
                --write-out '%{http_code}\n' "http://$HOST/small/[1-100].txt" | sort | uniq -c
            cat *.txt | digest"#,
        ),
    web("curl: HTTP/2 with 50 streams", WEB)
        .explicit(&[Socks5, Http])
        .client(
            r#"curl --silent --show-error --http2 --cacert "$COMMON/cert.pem" --parallel \
                --parallel-max 50 --output '#1.txt' --write-out '%{http_code} HTTP/%{http_version}\n' \
                "https://$HOST/small/[1-100].txt" | sort | uniq -c
            cat *.txt | digest
            curl --silent --show-error --http2 --cacert "$COMMON/cert.pem" \
                "https://$HOST/large.bin" | digest"#,
        ),
    web("curl: range, resume, HEAD", WEB)
        .explicit(&[Socks5, Http])
        .client(
            r#"curl --silent --show-error --range 1000000-1999999 "http://$HOST/large.bin" | digest
            curl --silent --show-error --range 0-4999999 --output part "http://$HOST/large.bin"
            curl --silent --show-error --continue-at - --output part "http://$HOST/large.bin"
            digest part
            curl --silent --show-error --head "http://$HOST/large.bin" | grep -i '^content-length'"#,
        ),
    web("curl: PUT with Expect, chunked PUT, PUT by HTTP/2", WEB)
        .explicit(&[Socks5, Http])
        .client(
            r#"payload 5000000 7 >file
            put() {
                curl --silent --show-error --output answer --write-out '%{http_code}\n' "$@"
            }
            put --header 'Expect: 100-continue' --upload-file file "http://$HOST/upload/$FAMILY.1"
            put --header 'Transfer-Encoding: chunked' --upload-file - "http://$HOST/upload/$FAMILY.2" <file
            put --http2 --cacert "$COMMON/cert.pem" --upload-file file "https://$HOST/upload/$FAMILY.3"
            digest <file
            digest <"$DIR/upload/$FAMILY.1"
            digest <"$DIR/upload/$FAMILY.2"
            digest <"$DIR/upload/$FAMILY.3""#,
        ),
    web("curl: a rate limit of its own, a speed limit that ends it", WEB)
        .explicit(&[Socks5, Http])
        .client(
            r#"curl --silent --show-error --limit-rate 200k --range 0-999999 "http://$HOST/large.bin" | digest
            status curl --silent --limit-rate 20k --speed-limit 100000 --speed-time 2 --output part \
                "http://$HOST/large.bin"
            cmp --bytes "$(stat --format %s part)" part "$COMMON/www/large.bin" && echo "what came is right""#,
        ),
    Case::new("curl: closed port", &[CURL])
        .sessions(Sessions::Any)
        .client(r#"status curl --silent --max-time 20 "http://$HOST:81/""#),
    web("curl: TCP Fast Open", WEB).client(
        r#"echo 3 >/proc/sys/net/ipv4/tcp_fastopen
        at server sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_fastopen'
        for number in 1 2 3; do
            curl --silent --show-error --tcp-fastopen "http://$HOST/small/$number.txt" | digest
        done"#,
    ),
    web("wget: recursive", WGET).explicit(&[Http]).client(
        r#"succeeds wget --quiet --recursive --no-host-directories "http://$HOST/"
        find . -name '*.txt' | wc -l
        cat small/*.txt | digest"#,
    ),
    web("ab: 500 requests, with and without keep-alive", AB).client(
        r#"ab -q -n 500 -c 20 "http://$HOST/small/50.txt" | grep -E '^(Complete|Failed|Non-2xx)'
        ab -q -k -n 500 -c 20 "https://$HOST/small/50.txt" | grep -E '^(Complete|Failed|Non-2xx)'"#,
    ),
    web("h2load: 1,000 requests in 10 connections", H2LOAD).client(
        r#"h2load -n 1000 -c 10 -m 10 "https://$HOST/small/100.txt" | grep -E '^(requests|status codes):'"#,
    ),
    web("wrk: 100 connections with TLS", WRK).client(
        r#"wrk -t 1 -c 100 -d 3s --timeout 20s "https://$HOST/small/10.txt" >out
        grep -E 'Socket errors|Non-2xx' out || echo "no errors""#,
    ),
    web("apt-get: update, 40 packages by pipelining", APT)
        .explicit(&[Http])
        .prepare(
            r#"mkdir -p "$COMMON/www/repository"
            certificate
            for number in $(seq 40); do
                mkdir -p "$COMMON/tree$number/DEBIAN" "$COMMON/tree$number/opt"
                payload 40000 "$number" >"$COMMON/tree$number/opt/file$number"
                printf 'Package: one%s\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: a\n' \
                    "$number" >"$COMMON/tree$number/DEBIAN/control"
                dpkg-deb --build -Znone "$COMMON/tree$number" "$COMMON/www/repository/one$number.deb"
            done
            cd "$COMMON/www/repository"
            apt-ftparchive packages . >Packages
            apt-ftparchive release . >Release"#,
        )
        .client(
            r#"mkdir -p apt/lists/partial apt/archives/partial
            touch status
            echo "deb [trusted=yes] http://$HOST/repository ./" >sources
            options="-o Dir::Etc=$PWD -o Dir::Etc::sourcelist=$PWD/sources -o Dir::Etc::sourceparts=/nowhere
                -o Dir::State=$PWD/apt -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD/apt
                -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=0"
            succeeds apt-get --quiet --quiet $options update
            succeeds apt-get --quiet --quiet $options download $(seq --format 'one%g' 40)
            cat one*.deb | digest"#,
        ),
    web("Node: fetch, 100 in a pool, a streamed PUT", NODE).client(
        r#"cat >client.mjs <<'END'
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
const base = "http://" + process.env.HOST;
const hash = createHash("sha256");
for (let round = 0; round < 2; round++) {
    const numbers = Array.from({ length: 50 }, (_, index) => 50 * round + index + 1);
    const answers = await Promise.all(numbers.map((number) => fetch(`${base}/small/${number}.txt`)));
    for (const answer of answers) hash.update(Buffer.from(await answer.arrayBuffer()));
    await new Promise((resolve) => setTimeout(resolve, 2000));
}
console.log(hash.digest("hex"));
async function* pieces() {
    for (let number = 0; number < 200; number++) yield Buffer.alloc(10000, number);
}
const put = await fetch(`${base}/upload/node.${process.env.FAMILY}`, {
    method: "PUT", body: ReadableStream.from(pieces()), duplex: "half",
});
console.log(put.status);
console.log(createHash("sha256").update(readFileSync(`${process.env.DIR}/upload/node.${process.env.FAMILY}`)).digest("hex"));
END
        succeeds node client.mjs"#,
    ),
    web("Java: HttpClient, 100 at a time, PUT with Expect", JAVA)
        .explicit(&[Http])
        .client(
            r#"cat >Client.java <<'END'
import java.net.*;
import java.net.http.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.CompletableFuture;

class Client {
    public static void main(String[] none) throws Exception {
        var environment = System.getenv();
        var base = "http://" + environment.get("HOST");
        var builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
        if (environment.get("VIA").equals("http")) {
            builder.proxy(ProxySelector.of(new InetSocketAddress(
                environment.get("PROXY"), Integer.parseInt(environment.get("PROXY_PORT")))));
        }
        var client = builder.build();
        var answers = new ArrayList<CompletableFuture<HttpResponse<byte[]>>>();
        for (int number = 1; number <= 100; number++) {
            var request = HttpRequest.newBuilder(URI.create(base + "/small/" + number + ".txt")).build();
            answers.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()));
        }
        var sum = MessageDigest.getInstance("SHA-256");
        for (var answer : answers) sum.update(answer.join().body());
        System.out.println(HexFormat.of().formatHex(sum.digest()));
        var name = "java." + environment.get("FAMILY");
        var put = HttpRequest.newBuilder(URI.create(base + "/upload/" + name)).expectContinue(true)
            .PUT(HttpRequest.BodyPublishers.ofByteArray(new byte[3000000])).build();
        System.out.println(client.send(put, HttpResponse.BodyHandlers.discarding()).statusCode());
        System.out.println(Files.size(Path.of(environment.get("DIR"), "upload", name)));
    }
}
END
            succeeds java -Djava.io.tmpdir="$PWD" Client.java"#,
        ),
    web("Chromium: a page with 100 objects", CHROMIUM)
        .explicit(&[Socks5, Http])
        .limit(180)
        .client(
            r#"proxy=
            case "$VIA" in
                socks5) proxy="--proxy-server=socks5://$PROXY_HOST:$PROXY_PORT" ;;
                http) proxy="--proxy-server=http://$PROXY_HOST:$PROXY_PORT" ;;
            esac
            cat >"$COMMON/www/page.html" <<'END'
<p id="sum">waiting</p><script>
Promise.all(Array.from({ length: 100 }, (_, index) =>
    fetch(`small/${index + 1}.txt`).then((answer) => answer.text()).then((text) => text.length)))
    .then((lengths) => { document.getElementById("sum").textContent = lengths.reduce((a, b) => a + b, 0); });
</script>
END
            chromium --headless --no-sandbox --disable-gpu $proxy --user-data-dir="$PWD/profile" \
                --virtual-time-budget=20000 --dump-dom "http://$HOST/page.html" | grep -o 'id="sum">[^<]*'"#,
        ),
    web("Firefox: a page with 100 objects", FIREFOX)
        .explicit(&[Socks5, Http])
        .limit(180)
        .client(
            r#"mkdir profile
            {
                case "$VIA" in
                    socks5)
                        echo "user_pref('network.proxy.type', 1);"
                        echo "user_pref('network.proxy.socks', '${PROXY_HOST//[\[\]]/}');"
                        echo "user_pref('network.proxy.socks_port', $PROXY_PORT);" ;;
                    http)
                        echo "user_pref('network.proxy.type', 1);"
                        echo "user_pref('network.proxy.http', '${PROXY_HOST//[\[\]]/}');"
                        echo "user_pref('network.proxy.http_port', $PROXY_PORT);" ;;
                    *) echo "user_pref('network.proxy.type', 0);" ;;
                esac
                # Otherwise Firefox first asks servers of its maker, which do not exist here.
                echo "user_pref('network.captive-portal-service.enabled', false);"
                echo "user_pref('network.connectivity-service.enabled', false);"
            } >profile/user.js
            cat >"$COMMON/www/firefox.html" <<'END'
<script>
Promise.all(Array.from({ length: 100 }, (_, index) =>
    fetch(`small/${index + 1}.txt`).then((answer) => answer.text()).then((text) => text.length)))
    .then((lengths) => fetch("upload/" + location.search.slice(1),
        { method: "PUT", body: "characters: " + lengths.reduce((a, b) => a + b, 0) + "\n" }));
</script>
END
            HOME=$PWD MOZ_CRASHREPORTER_DISABLE=1 firefox-esr --headless --no-remote \
                --profile "$PWD/profile" "http://$HOST/firefox.html?firefox.$FAMILY" >&2 &
            until_true test -s "$DIR/upload/firefox.$FAMILY"
            cat "$DIR/upload/firefox.$FAMILY"
            kill $!
            wait $! || true"#,
        ),
];
