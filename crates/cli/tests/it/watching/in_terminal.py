"""Runs a command in a pseudo-terminal of a given size, presses a key once the screen shows a word, prints what came."""

import fcntl
import os
import pty
import struct
import sys
import termios

columns, rows, word, key, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]
first, second = pty.openpty()
fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
child = os.fork()
if child == 0:
    os.close(first)
    os.setsid()
    fcntl.ioctl(second, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(second, number)
    os.environ["TERM"] = "xterm-256color"
    os.execv(command[0], command)
os.close(second)
shown = b""
pressed = False
while True:
    try:
        piece = os.read(first, 65536)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    if not pressed and word.encode() in shown:
        os.write(first, b"\x03" if key == "ctrl-c" else key.encode())
        pressed = True
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
