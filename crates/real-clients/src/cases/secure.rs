//! TLS and WebSocket: how encrypted connections end.

use super::{OPENSSL, PYTHON};
use crate::case::Case;
use crate::needed::Needed;

const TLS: &[Needed] = &[OPENSSL, PYTHON];
const WEBSOCKET: &[Needed] = &[
    PYTHON,
    Needed::new(
        "/usr/lib/python3/dist-packages/websockets",
        "python3-websockets",
    ),
];

pub(super) const CASES: &[Case] = &[
    Case::new("openssl: s_client, s_server -WWW", &[OPENSSL])
        .prepare("certificate\npayload 5000000 >\"$COMMON/file\"")
        .server(
            r#"cd "$COMMON"
            openssl s_server -quiet -accept 4433 -cert cert.pem -key key.pem -WWW &
            ready 4433"#,
        )
        .client(
            r#"printf 'GET /file HTTP/1.0\r\n\r\n' |
                openssl s_client -quiet -ign_eof -CAfile "$COMMON/cert.pem" -connect "$HOST:4433" 2>/dev/null |
                tail --bytes 5000000 | digest
            echo Q | openssl s_client -CAfile "$COMMON/cert.pem" -connect "$HOST:4433" 2>/dev/null |
                grep -oE 'Verify return code.*|Protocol version.*' | sort -u"#,
        ),
    Case::new("TLS ends: close_notify, FIN without it, RST", TLS)
        .prepare("certificate")
        .server(
            r#"cat >"$DIR/server.py" <<'END'
import os, socket, ssl, struct
common = os.environ["COMMON"]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(common + "/cert.pem", common + "/key.pem")
listener = socket.create_server(("::", 4433), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    plain, _ = listener.accept()
    plain.settimeout(20)
    connection = context.wrap_socket(plain, server_side=True)
    how = connection.recv(100).decode()
    connection.sendall(b"x" * 100000)
    # The client has everything: what comes next is the end alone.
    connection.recv(100)
    if how == "close_notify":
        try:
            connection.unwrap().close()
        except OSError:
            connection.close()
    elif how == "fin":
        os.close(connection.detach())
    else:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(connection.detach())
END
            python3 "$DIR/server.py" &
            ready 4433"#,
        )
        .client(
            r#"cat >client.py <<'END'
import os, socket, ssl
context = ssl.create_default_context(cafile=os.environ["COMMON"] + "/cert.pem")
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
for how in "close_notify", "fin", "rst":
    plain = socket.create_connection((os.environ["SERVER"], 4433), timeout=20)
    # TLS apart from the socket, to see what each of them tells of the end.
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = context.wrap_bio(incoming, outgoing, server_hostname=os.environ["SERVER"])
    def run(action, *arguments):
        while True:
            try:
                return action(*arguments)
            except ssl.SSLWantReadError:
                pass
            finally:
                plain.sendall(outgoing.read())
            data = plain.recv(65536)
            incoming.write(data) if data else incoming.write_eof()
    run(secure.do_handshake)
    run(secure.write, how.encode())
    length = 0
    try:
        while length < 100000:
            length += len(run(secure.read, 65536))
        run(secure.write, b"all")
        print(how, length, run(secure.read, 65536), "close_notify")
        run(secure.unwrap)
    except OSError as error:
        print(how, length, type(error).__name__)
    plain.close()
END
            python3 client.py"#,
        ),
    Case::new("WebSocket: a large frame, idle with pings, 200 round trips, close code", WEBSOCKET)
        .server(
            r#"cat >"$DIR/server.py" <<'END'
import asyncio, hashlib, os, websockets
async def serve(connection):
    frame = await connection.recv()
    await connection.send(hashlib.sha256(frame).hexdigest())
    await connection.send(frame[::-1])
    await asyncio.sleep(8)
    for _ in range(200):
        await connection.send(await connection.recv())
    try:
        await connection.recv()
    except websockets.ConnectionClosed as end:
        with open(os.environ["DIR"] + "/seen", "a") as seen:
            print("closed by the client:", end.rcvd.code, end.rcvd.reason, file=seen)
        with open(os.environ["DIR"] + "/closed", "a"):
            pass
async def main():
    async with websockets.serve(serve, ["0.0.0.0", "::"], 8765, max_size=1 << 26, ping_interval=2,
                                ping_timeout=20):
        await asyncio.Future()
asyncio.run(main())
END
            python3 "$DIR/server.py" &
            ready 8765"#,
        )
        .client(
            r#"rm -f "$DIR/closed"
            cat >client.py <<'END'
import asyncio, hashlib, os, websockets
async def main():
    url = "ws://" + os.environ["HOST"] + ":8765"
    async with websockets.connect(url, max_size=1 << 26, ping_interval=2, ping_timeout=20) as connection:
        await connection.send(bytes(range(256)) * 40000)
        print(await connection.recv())
        print(hashlib.sha256(await connection.recv()).hexdigest())
        for number in range(200):
            await connection.send(str(number))
            assert await connection.recv() == str(number)
        await connection.close(4001, "that is all")
        print("closed:", connection.close_code, connection.close_reason)
asyncio.run(main())
END
            python3 client.py
            until_true test -e "$DIR/closed""#,
        ),
];
