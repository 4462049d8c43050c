"""A server and a client of HTTP/3 and HTTPS: python3 http3.py server|client ADDRESS CERTIFICATE KEY.

The client tries HTTP/3 first and then HTTPS over TCP, as browsers do, and prints what worked.
"""

import asyncio
import http.client
import http.server
import os
import ssl
import sys
import threading

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

part, address, certificate, key = sys.argv[1:]


class Http3(QuicConnectionProtocol):
    """Answers requests; or sends one, and waits for the status."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.http = H3Connection(self._quic)
        self.status = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event):
        for received in self.http.handle_event(event):
            if not isinstance(received, HeadersReceived):
                continue
            if self._quic.configuration.is_client:
                self.status.set_result(dict(received.headers)[b":status"].decode())
            else:
                answer = [(b":status", b"200")]
                self.http.send_headers(received.stream_id, answer, end_stream=True)
                self.transmit()

    async def ask(self):
        request = {":method": "GET", ":scheme": "https", ":authority": "test", ":path": "/"}
        headers = [(name.encode(), value.encode()) for name, value in request.items()]
        self.http.send_headers(self._quic.get_next_available_stream_id(), headers, end_stream=True)
        self.transmit()
        return await self.status


class Https(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


async def run_server():
    server = http.server.ThreadingHTTPServer((address, 443), Https)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, is_client=False)
    configuration.load_cert_chain(certificate, key)
    await serve(address, 443, configuration=configuration, create_protocol=Http3)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def run_client():
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, is_client=True)
    configuration.verify_mode = ssl.CERT_NONE
    try:
        connecting = connect(address, 443, configuration=configuration, create_protocol=Http3)
        async with asyncio.timeout(20), connecting as client:
            print("HTTP/3", await client.ask(), flush=True)
            # Without waiting until the connection has ended.
            os._exit(0)
    except (OSError, TimeoutError) as error:
        print(f"no HTTP/3: {type(error).__name__}")
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(address, 443, context=context, timeout=20)
    connection.request("GET", "/")
    print("HTTPS", connection.getresponse().status)


asyncio.run(run_server() if part == "server" else run_client())
