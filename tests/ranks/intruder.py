"""Connections that nobody has asked for, for tests: to a unix socket (/PATH) or to HOST:PORT.

intruder.py attack WHERE                sends what only members may send; prints how each attempt ended
intruder.py crowd WHERE N KIND SECONDS  keeps N connections open: idle, garbage, half (of a message), slow (bytes)
intruder.py hunt N KIND SECONDS         the same to every TCP socket of this network namespace, once it listens
intruder.py workers WHERE N             N honest workers of one job at once; prints how many were welcomed, and when
"""
import random
import resource
import socket
import struct
import sys
import threading
import time

MAGIC = 0x636C736D
TYPES = ["join", "progress", "refuse", "welcome", "heartbeat", "compare", "abort", "leave", "challenge", "proof",
         "accept", "command", "reply", "event", "relay"]

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def encode(kind, **fields):
    body = b""
    for name in sorted(fields):
        for text in (name.encode(), fields[name].encode() if isinstance(fields[name], str) else fields[name]):
            body += struct.pack("<I", len(text)) + text
    head = struct.pack("<II", TYPES.index(kind), len(body))
    return struct.pack("<I", MAGIC) + head + struct.pack("<I", crc32c(head + body)) + body


def receive(sock):
    """The type and fields of the next message; None when the connection is closed."""
    def exactly(n):
        data = b""
        while len(data) < n:
            piece = sock.recv(n - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data
    try:
        _, kind, size, _ = struct.unpack("<IIII", exactly(16))
        body, fields = exactly(size), []
    except (ConnectionError, OSError):
        return None
    while body:
        (length,) = struct.unpack("<I", body[:4])
        fields.append(body[4:4 + length].decode(errors="replace"))
        body = body[4 + length:]
    return TYPES[kind], dict(zip(fields[::2], fields[1::2]))


def connect(where, timeout=5):
    if where.startswith("/"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address = where
    else:
        host, port = where.rsplit(":", 1)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        address = (host, int(port))
    sock.settimeout(timeout)
    sock.connect(address)
    return sock


JOIN = encode("join", id="0", host="evil", endpoint="127.0.0.1:1", who="")
ATTACKS = {
    "join": JOIN,
    "join and leave": JOIN + encode("leave"),
    "join and abort": JOIN + encode("abort", code="0", why="\033]0;x\a\nmslua: error[0] forged"),
    "abort": encode("abort", code="0", why="forged"),
    "leave": encode("leave"),
    "relay of Lua": JOIN + encode("relay", to="0", op="ask", seq="1", line="os.execute('touch /tmp/intruder')"),
    "compare": encode("compare", name="x", value="y"),
    "welcome": encode("welcome", rank="0", size="1", job="x"),
    "proof": encode("proof", proof="x" * 32),
    "challenge and proof": encode("challenge", use="control", nonce="n" * 32) + encode("proof", proof="x" * 32) + JOIN,
    "challenge for data": encode("challenge", use="data", job="", epoch="0", nonce="n" * 32,
                                 **{"from": "1", "to": "0"}),
    "16 zeros": b"\0" * 16,
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "huge": struct.pack("<IIII", MAGIC, TYPES.index("welcome"), 4 << 20, 0),
}


def attack(where):
    for name, bytes_ in ATTACKS.items():
        try:
            sock = connect(where)
        except OSError as error:
            print(f"{name}: no connection ({error.strerror})")
            continue
        try:
            sock.sendall(bytes_)
            answers = []
            while (message := receive(sock)) is not None:
                answers.append(message[0] + (f" ({message[1]['reason']})" if "reason" in message[1] else ""))
            print(f"{name}: {', then '.join(answers + ['closed'])}")
        except OSError as error:
            print(f"{name}: {'silence' if isinstance(error, socket.timeout) else 'closed'}")
        sock.close()


def crowd(where, count, kind, seconds):
    end = time.time() + seconds
    opened, socks = 0, []
    print("ready", flush=True)
    while time.time() < end:
        while len(socks) < count and time.time() < end:
            try:
                sock = connect(where, 0.5)
            except OSError:
                time.sleep(0.01)
                continue
            opened += 1
            sock.setblocking(False)
            try:
                if kind == "garbage":
                    sock.send(random.randbytes(random.randrange(1, 4000)))
                elif kind == "half":
                    sock.send(JOIN[:random.randrange(1, len(JOIN))])
            except OSError:
                pass
            socks.append(sock)
        alive = []
        for sock in socks:
            try:
                if kind == "slow":
                    sock.send(JOIN[:1])
                if sock.recv(4096):
                    alive.append(sock)
            except BlockingIOError:
                alive.append(sock)
            except OSError:
                pass
        socks = alive
        time.sleep(0.05)
    print(f"opened {opened}")


def listeners():
    """HOST:PORT of the TCP sockets that listen here."""
    found = set()
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            words = line.split()
            if words[3] == "0A":
                host, port = words[1].split(":")
                found.add(f"{socket.inet_ntoa(struct.pack('<I', int(host, 16)))}:{int(port, 16)}")
    return found


def hunt(count, kind, seconds):
    end, threads, known = time.time() + seconds, [], set()
    print("ready", flush=True)
    while time.time() < end:
        for where in listeners() - known:
            known.add(where)
            threads.append(threading.Thread(target=crowd, args=(where, count, kind, end - time.time())))
            threads[-1].start()
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    print(f"found {len(known)} sockets")


def workers(where, count):
    welcomed, begin, lock = [], time.time(), threading.Lock()

    def work(i):
        sock = connect(where, 60)
        sock.sendall(encode("join", id=str(i), host="h", endpoint="", who=""))
        while (message := receive(sock)) is not None and message[0] != "welcome":
            pass
        if message is not None:
            with lock:
                welcomed.append(time.time() - begin)
        sock.sendall(encode("leave"))
        receive(sock)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"welcomed {len(welcomed)} of {count}, the last after {max(welcomed or [0]):.2f} s")


def main(argv):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if argv[0] == "attack":
        attack(argv[1])
    elif argv[0] == "crowd":
        crowd(argv[1], int(argv[2]), argv[3], float(argv[4]))
    elif argv[0] == "hunt":
        hunt(int(argv[1]), argv[2], float(argv[3]))
    elif argv[0] == "workers":
        workers(argv[1], int(argv[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
