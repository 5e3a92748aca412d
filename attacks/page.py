"""The page under attack: connections that say nothing, say it slowly, or never read the answer."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from damage import trained
from harness import attack

HONEST = str(pathlib.Path(__file__).with_name("honest.py"))


class Page:
    """`lowtide watch` on a run, for as long as the block lasts."""

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        words = [self.place.front, "watch", str(trained(self.place)), "--json", "--port", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        told = json.loads(self.process.stdout.readline())
        address = told.get("address") or told.get("url")
        self.url = address
        host, port = address.split("//")[1].split("/")[0].rsplit(":", 1)
        self.at = (host, int(port))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def memory(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def honest(self, times=12):
        """How many of so many honest requests are answered; in this process they would wait for the attackers' thread."""
        words = [sys.executable, "-B", HONEST, self.url, str(times)]
        return int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)


def connect(page):
    connection = socket.create_connection(page.at, timeout=5)
    return connection


def drip(page, count, first, then, seconds):
    """Opens connections that send `first`, and then a byte of `then` every half second."""
    connections = []
    for _ in range(count):
        try:
            connection = connect(page)
            connection.sendall(first)
            connections.append(connection)
        except OSError:
            pass
    stop = threading.Event()

    def go_on():
        while not stop.wait(0.5):
            for number, connection in enumerate(connections):
                try:
                    if then:
                        connection.sendall(then)
                except OSError:
                    try:
                        connections[number] = connect(page)
                        connections[number].sendall(first)
                    except OSError:
                        pass

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    time.sleep(seconds)
    return connections, stop, thread


ATTACKS = {
    "says nothing": (b"", b""),
    "sends a request's head slowly": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"a"),
    "sends one header after the other": (b"GET / HTTP/1.1\r\n", b"X-A: b\r\n"),
    "promises a body and sends it slowly": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"a"),
}


@attack("half-open requests, by the dozen and by the hundred, beside an honest client")
def slow_heads(place):
    with Page(place) as page:
        place.check("honest alone", page.honest(3) == 3, "")
        for words, (first, then) in ATTACKS.items():
            for count in (50, 200, 700):
                connections, stop, thread = drip(page, count, first, then, 1.0)
                answered = page.honest()
                stop.set()
                thread.join()
                for connection in connections:
                    connection.close()
                place.check(f"{count} times one that {words}: an honest client", answered == 12, f"{answered} of 12 answered")
        place.check("its memory stays small", page.memory() < 128 << 20, f"{page.memory() >> 20} MiB")


@attack("clients that ask for everything and never read it")
def no_readers(place):
    with Page(place) as page:
        connections = []
        for _ in range(50):
            connection = connect(page)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % page.at[0].encode() * 20)
            except OSError:
                pass
            connections.append(connection)
        time.sleep(1)
        answered = page.honest()
        place.check("an honest client", answered == 12, f"{answered} of 12 answered")
        for connection in connections:
            connection.close()
        place.check("its memory stays small", page.memory() < 128 << 20, f"{page.memory() >> 20} MiB")


@attack("a head without an end")
def endless_head(place):
    with Page(place) as page:
        connection = connect(page)
        sent = 0
        try:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            while sent < 64 << 20:
                connection.sendall(b"X-A: " + b"b" * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass
        place.check("is cut off", sent < 4 << 20, f"after {sent} bytes")
        place.check("its memory stays small", page.memory() < 64 << 20, f"{page.memory() >> 20} MiB")
