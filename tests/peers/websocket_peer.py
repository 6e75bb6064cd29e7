"""The relay as a WebSocket server (RFC 6455), asked by websockets (PyPI): its protocol without a socket says and reads
what it can; what it would not say is written as bytes. Says what it checked.

Usage: websocket_peer.py DEMO_JSON
"""

import json
import socket
import struct
import sys
import urllib.request
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

with open(sys.argv[1], encoding="utf-8") as file:
    DEMO = json.load(file)
RELAY = urlsplit(DEMO["relayUrl"])
LIMIT = 64 * 1024
CONT, TEXT, BINARY, CLOSE, PING, PONG = Opcode.CONT, Opcode.TEXT, Opcode.BINARY, Opcode.CLOSE, Opcode.PING, Opcode.PONG
# Letters of one, two, three and four bytes.
LETTERS = "aé€𝄞"
PING_MESSAGE = b'{"type":"ping"}'
PONG_MESSAGE = {"type": "pong"}


def api(method, path, body=None, **headers):
    headers = headers or {"cookie": DEMO["cookie"]}
    data = None
    if body is not None:
        headers["content-type"], data = "application/json", json.dumps(body).encode()
    request = urllib.request.Request(DEMO["apiUrl"] + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def raw(opcode, data=b"", fin=True, reserved=0, masked=True):
    """A frame that the library would refuse to make."""
    head = bytes([fin << 7 | reserved << 4 | opcode])
    mask = masked << 7
    if len(data) < 126:
        head += bytes([mask | len(data)])
    elif len(data) < 65536:
        head += struct.pack("!BH", mask | 126, len(data))
    else:
        head += struct.pack("!BQ", mask | 127, len(data))
    key = b"\x5a\x01\xff\x80"
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(data)) if masked else head + data


def asked(request):
    """A message that is answered by an `error` with this id."""
    return json.dumps({"type": "conformance", "requestId": request}, ensure_ascii=False).encode()


class Connection:
    """The library's protocol over a socket of ours."""

    token = None

    def __init__(self, behind=b"", pieces=None, extensions=None, **headers):
        uri = parse_uri(f"{DEMO['relayUrl']}/v1?token={self.token}")
        self.protocol = ClientProtocol(uri, max_size=None, extensions=extensions)
        self.events = []
        self.tcp = socket.create_connection((RELAY.hostname, RELAY.port), timeout=20)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = self.protocol.connect()
        for name, value in headers.items():
            name = name.replace("_", "-")
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self.protocol.send_request(request)
        self.write(b"".join(self.protocol.data_to_send()) + behind, pieces)
        self.response = self.event()
        if self.protocol.handshake_exc is not None and not headers:
            raise self.protocol.handshake_exc

    def write(self, data, pieces=None):
        """Bytes as they are: in one segment, or in pieces of so many bytes."""
        for at in range(0, len(data), pieces or len(data)):
            self.tcp.sendall(data[at : at + (pieces or len(data))])

    def send(self):
        """What the protocol wants to send."""
        for data in self.protocol.data_to_send():
            if data:
                self.tcp.sendall(data)
            else:
                self.tcp.shutdown(socket.SHUT_WR)

    def read(self):
        try:
            data = self.tcp.recv(65536)
        except TimeoutError:
            raise AssertionError("no answer within 20 s") from None
        if data:
            self.protocol.receive_data(data)
        else:
            self.protocol.receive_eof()
        self.events += self.protocol.events_received()
        self.send()
        return bool(data)

    def event(self):
        while not self.events:
            if not self.read() and not self.events:
                raise AssertionError(f"an end without an answer: {self.protocol.close_exc}")
        return self.events.pop(0)

    def expect_pong(self, payload):
        frame = self.event()
        assert (frame.opcode, bytes(frame.data)) == (PONG, payload), f"a pong {payload}, not {frame}"

    def message(self):
        frame = self.event()
        assert frame.opcode == TEXT and frame.fin, f"a text, not {frame}"
        return json.loads(bytes(frame.data))

    def expect_echo(self, request):
        message = self.message()
        assert (message.get("code"), message.get("requestId")) == ("unknown_type", request), message

    def expect_malformed(self):
        message = self.message()
        assert (message["type"], message.get("code")) == ("error", "malformed"), message

    def expect_close(self, *codes, reason=None):
        """The close frame next, and then the end of the TCP connection."""
        frame = self.event()
        assert frame.opcode == CLOSE, f"close {codes}, not {frame}"
        got = self.protocol.close_rcvd
        assert got.code in codes and reason in (None, got.reason), f"close {codes}, not {got}"
        while self.read():
            pass
        assert self.protocol.state is State.CLOSED and not self.events, self.events
        self.tcp.close()

    def leave(self):
        self.protocol.send_close(1000, "done")
        self.send()
        self.expect_close(1000)


def fragments():
    connection = Connection()
    message = asked(LETTERS)
    inside = message.index("𝄞".encode()) + 2
    protocol = connection.protocol
    protocol.send_text(message[:5], fin=False)
    protocol.send_ping(b"between")
    protocol.send_continuation(b"", fin=False)
    protocol.send_continuation(message[5:inside], fin=False)
    protocol.send_pong(b"unasked")
    protocol.send_ping(b"")
    protocol.send_continuation(message[inside:], fin=False)
    protocol.send_continuation(b"", fin=True)
    connection.send()
    connection.expect_pong(b"between")
    connection.expect_pong(b"")
    connection.expect_echo(LETTERS)
    protocol.send_text(b"", fin=False)
    protocol.send_continuation(PING_MESSAGE, fin=True)
    connection.send()
    assert connection.message() == PONG_MESSAGE
    parts = [Frame(TEXT if at == 0 else CONT, message[at : at + 1], fin=at == len(message) - 1) for at in range(len(message))]
    assert len(parts) > 30
    connection.write(b"".join(part.serialize(mask=True) for part in parts))
    connection.expect_echo(LETTERS)
    connection.leave()


def pings():
    connection = Connection()
    for payload in [b"", b"x", b"\xff\x00", b"y" * 125]:
        connection.protocol.send_ping(payload)
        connection.send()
        connection.expect_pong(payload)
    connection.leave()


def no_frame():
    part = raw(TEXT, b'{"type":', fin=False)
    wrong = {
        "an unmasked text": raw(TEXT, PING_MESSAGE, masked=False),
        "an unmasked close": raw(CLOSE, b"\x03\xe8", masked=False),
        "a text within a message": part + raw(TEXT, PING_MESSAGE),
        "the start of a text within a message": part + part,
        "the start of a binary within a message": part + raw(BINARY, b"x", fin=False),
        "a continuation without a start": raw(CONT, PING_MESSAGE),
        "an unfinished continuation without a start": raw(CONT, b"", fin=False),
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15]:
        wrong[f"opcode {opcode}"] = raw(opcode, b"")
        wrong[f"opcode {opcode} within a message"] = part + raw(opcode, b"x")
    for reserved in [1, 2, 4, 7]:
        for opcode in [TEXT, BINARY, CLOSE, PING, PONG]:
            wrong[f"reserved bits {reserved} of {opcode.name}"] = raw(opcode, b"", reserved=reserved)
        wrong[f"reserved bits {reserved} of a continuation"] = part + raw(CONT, b"", reserved=reserved)
    for opcode in [CLOSE, PING, PONG]:
        wrong[f"{opcode.name} in fragments"] = raw(opcode, b"", fin=False)
        wrong[f"{opcode.name} of 126 bytes"] = raw(opcode, b"\x03" * 126)
        wrong[f"{opcode.name} of 126 bytes within a message"] = part + raw(opcode, b"\x03" * 126)
    for what, data in wrong.items():
        connection = Connection()
        connection.write(data)
        try:
            connection.expect_close(1002)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
    return f"{len(wrong)} ways"


def no_utf8():
    for bad in [b"\x80", b"\xf0\x9d\x84", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xff"]:
        text = b'{"type":"' + bad + b'"}'
        for parts in [[text], [text[:10], text[10:]], [text[:9], b"", text[9:]]]:
            connection = Connection()
            for at, part in enumerate(parts):
                frame = Frame(CONT if at else TEXT, part, fin=at == len(parts) - 1)
                connection.write(frame.serialize(mask=True))
            connection.expect_close(1007)


def binary():
    connection = Connection()
    connection.protocol.send_binary(PING_MESSAGE)
    connection.protocol.send_binary(b"\xff", fin=False)
    connection.protocol.send_continuation(b"\xfe", fin=True)
    connection.protocol.send_text(PING_MESSAGE)
    connection.send()
    connection.expect_malformed()
    connection.expect_malformed()
    assert connection.message() == PONG_MESSAGE
    connection.leave()


def size():
    largest = PING_MESSAGE.ljust(LIMIT)
    connection = Connection()
    connection.protocol.send_text(largest)
    connection.protocol.send_text(largest[:9], fin=False)
    connection.protocol.send_continuation(largest[9:], fin=True)
    connection.send()
    assert (connection.message(), connection.message()) == (PONG_MESSAGE, PONG_MESSAGE)
    connection.leave()
    for parts in [[largest + b" "], [largest, b" "], [b" ", largest], [largest[:30000], largest[:30000], largest[:5537]]]:
        connection = Connection()
        for at, part in enumerate(parts):
            connection.write(Frame(CONT if at else TEXT, part, fin=at == len(parts) - 1).serialize(mask=True))
        connection.expect_close(1009)
    # The length alone is not believed and not waited for.
    for length in [LIMIT + 1, 1 << 40]:
        connection = Connection()
        connection.write(struct.pack("!BBQI", 0x81, 0xFF, length, 0) + largest + b" ")
        connection.expect_close(1009)


def goodbye():
    for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4501, 4999]:
        connection = Connection()
        connection.protocol.send_close(code, LETTERS)
        connection.send()
        connection.expect_close(code)
    without = Connection()
    without.protocol.send_close()
    without.send()
    without.expect_close(1005)
    unfinished = Connection()
    unfinished.write(raw(TEXT, b"{", fin=False) + raw(CLOSE, b"\x0f\xa0"))
    unfinished.expect_close(4000)


def wrong_goodbye():
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]:
        connection = Connection()
        connection.write(raw(CLOSE, struct.pack("!H", code)))
        try:
            connection.expect_close(1002)
        except AssertionError as error:
            raise AssertionError(f"code {code}: {error}") from None
    connection = Connection()
    connection.write(raw(CLOSE, b"\x03"))
    connection.expect_close(1002)
    for reason in [b"\xff", "𝄞".encode()[:3]]:
        connection = Connection()
        connection.write(raw(CLOSE, b"\x03\xe8" + reason))
        connection.expect_close(1002, 1007)


def closed_by_the_relay():
    connection = Connection()
    connection.write(raw(TEXT, PING_MESSAGE) * 31)
    while connection.events or connection.read():
        if connection.events[0].opcode == CLOSE:
            break
        assert connection.message() == PONG_MESSAGE
    connection.expect_close(4429, reason="too many messages")
    # An overlay's socket ends with its device.
    code = api("POST", "/pairing/device/code", {"scope": "overlay", "serverId": DEMO["servers"][0]["id"]})["code"]
    device = api("POST", "/pairing/device/activate", {"code": code})
    owners, minted = Connection.token, api("POST", "/relay/token", authorization=f"Bearer {device['token']}")
    Connection.token = minted["token"]
    overlay = Connection()
    Connection.token = owners
    api("DELETE", f"/pairing/device/{device['deviceId']}")
    overlay.expect_close(4501, reason="signed out")


def after_a_close():
    behind = raw(TEXT, PING_MESSAGE) + raw(PING, b"x") + raw(TEXT, b"x", masked=False) + raw(CLOSE, b"\x03\xea")
    goodbye = raw(CLOSE, b"\x0f\xa0")
    for pieces in [None, 6]:
        connection = Connection()
        connection.write(goodbye + behind, pieces)
        connection.expect_close(4000)
        connection = Connection()
        connection.write(raw(TEXT, b"x", masked=False) + behind, pieces)
        connection.expect_close(1002)


def segments():
    ids = [str(at) for at in range(30)]
    connection = Connection(behind=b"".join(raw(TEXT, asked(at)) for at in ids))
    assert connection.response.status_code == 101
    for at in ids:
        connection.expect_echo(at)
    connection.leave()
    # The handshake too.
    frames = raw(TEXT, asked(LETTERS)) + raw(PING, b"x") + raw(TEXT, asked("y" * 128))
    connection = Connection(behind=frames, pieces=1)
    connection.expect_echo(LETTERS)
    connection.expect_pong(b"x")
    connection.expect_echo("y" * 128)
    connection.leave()


def compressed():
    connection = Connection(extensions=[ClientPerMessageDeflateFactory()])
    agreed = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    assert connection.response.headers["Sec-WebSocket-Extensions"] == agreed, connection.response.headers
    protocol = connection.protocol
    message = asked("y" * 128)
    protocol.send_text(message)
    protocol.send_text(message[:9], fin=False)
    protocol.send_ping(b"between")
    protocol.send_continuation(message[9:], fin=True)
    connection.send()
    connection.expect_echo("y" * 128)
    events = [connection.event(), connection.event()]
    assert {event.opcode for event in events} == {TEXT, PONG}, events
    protocol.send_text(json.dumps({"type": "subscribe", "serverId": DEMO["servers"][0]["id"]}).encode())
    connection.send()
    assert connection.message()["type"] == "snapshot"
    connection.tcp.close()
    connection = Connection(extensions=[ClientPerMessageDeflateFactory()])
    connection.protocol.send_text(PING_MESSAGE.ljust(LIMIT))
    connection.protocol.send_text(PING_MESSAGE.ljust(LIMIT + 1))
    connection.send()
    assert connection.message() == PONG_MESSAGE
    connection.expect_close(1009)
    # A window that the relay does not agree to.
    connection = Connection(extensions=[ClientPerMessageDeflateFactory(server_max_window_bits=12)])
    assert "Sec-WebSocket-Extensions" not in connection.response.headers
    connection.leave()


def handshake():
    connection = Connection(Sec_WebSocket_Version="14")
    assert connection.response.status_code == 426, connection.response
    assert connection.response.headers["Sec-WebSocket-Version"] == "13"
    connection.tcp.close()
    offer = "permessage-bzip2, unheard-of; client_max_window_bits"
    connection = Connection(Sec_WebSocket_Extensions=offer)
    assert connection.response.status_code == 101 and "Sec-WebSocket-Extensions" not in connection.response.headers
    connection.leave()


CHECKS = {
    "messages in fragments, with control frames between and ends inside a character": fragments,
    "a ping is answered by its payload": pings,
    "what is no frame of a client closes with 1002": no_frame,
    "text that is no UTF-8 closes with 1007": no_utf8,
    "binary is answered by an error and the connection goes on": binary,
    "the largest message is taken, one byte more closes with 1009": size,
    "a close is answered by its code, and the connection ends": goodbye,
    "a close that says nothing valid closes with 1002 or 1007": wrong_goodbye,
    "a close by the relay carries its code and reason": closed_by_the_relay,
    "what comes after a close is ignored": after_a_close,
    "frames behind the handshake in one segment, and each byte in its own": segments,
    "compressed messages are understood both ways, whole and in fragments": compressed,
    "what is not known is not agreed on, and another version is answered by 426 and the right one": handshake,
}

Connection.token = api("POST", "/relay/token")["token"]
failed = 0
for name, check in CHECKS.items():
    try:
        detail = check()
        print(f"websocket_peer.py: {name}" + (f" ({detail})" if detail else ""), flush=True)
    except Exception as error:
        failed += 1
        print(f"websocket_peer.py: FAILED: {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
sys.exit(failed > 0)
