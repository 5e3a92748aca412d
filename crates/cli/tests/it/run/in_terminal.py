"""Runs a command in a pseudo-terminal of 33 rows and 77 columns; does what its arguments say as words appear.

Arguments: steps `WORD=ACTION` joined by commas, then the command. Actions: `resize`, or keys with `^C` and `^Z` for
Ctrl-C and Ctrl-Z.
Prints what was shown, and whether the terminal's settings are as they were before.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

steps = [step.split("=", 1) for step in sys.argv[1].split(",") if step]
command = sys.argv[2:]
first, second = pty.openpty()


def resize(rows, columns):
    fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


resize(33, 77)
before = termios.tcgetattr(second)
child = os.fork()
if child == 0:
    os.close(first)
    os.setsid()
    fcntl.ioctl(second, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(second, number)
    # A shell that starts the tests in the background lets them ignore the keys; a terminal does not.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)
shown = b""


def give_up(*_):
    sys.stdout.buffer.write(shown)
    print(f"hangs before {steps}")
    sys.stdout.flush()
    os._exit(124)


# What hangs is to be seen as a failure.
signal.signal(signal.SIGALRM, give_up)
signal.alarm(60)
while True:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    os.set_blocking(first, False)
    try:
        shown += os.read(first, 65536)
    except BlockingIOError:
        os.sched_yield()
    if steps and steps[0][0].encode() in shown:
        action = steps.pop(0)[1]
        if action == "resize":
            resize(20, 50)
        else:
            os.write(first, action.replace("^C", "\x03").replace("^Z", "\x1a").encode())
# The kernel hands over what was written in pieces, and not at once.
while select.select([first], [], [], 0.3)[0]:
    shown += os.read(first, 65536)
sys.stdout.buffer.write(shown)
print("settings kept" if termios.tcgetattr(second) == before else "settings changed")
sys.exit(os.waitstatus_to_exitcode(status))
