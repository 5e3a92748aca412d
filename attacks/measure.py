"""Runs one command and tells how it ended, as JSON on another descriptor.

A process of its own, because what a child is said to have taken includes what its parent had: this one has little.

Arguments: the descriptor, seconds until it is killed, bytes of address space (0: any), bytes of the largest file (0: any), the command.
"""

import json
import os
import resource
import signal
import sys
import time

told, limit, space, file_size = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
began = time.monotonic()
child = os.fork()
if child == 0:
    os.close(told)
    # Python ignores these two, and a child would inherit that.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if space:
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    try:
        os.execv(sys.argv[5], sys.argv[5:])
    finally:
        os._exit(127)


def end(*_):
    os.kill(child, signal.SIGKILL)


signal.signal(signal.SIGALRM, end)
signal.signal(signal.SIGTERM, end)
signal.setitimer(signal.ITIMER_REAL, limit)
_, status, used = os.wait4(child, 0)
ended = {
    "code": os.waitstatus_to_exitcode(status),
    "seconds": time.monotonic() - began,
    "busy": used.ru_utime + used.ru_stime,
    "peak": used.ru_maxrss * 1024,
}
os.write(told, json.dumps(ended).encode())
