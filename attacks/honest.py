"""Honest requests for a page, in a process of their own: prints how many of TIMES at URL are answered within two seconds each."""

import sys
import urllib.request


def answered(url, times):
    count = 0
    for _ in range(times):
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                count += answer.status == 200 and len(answer.read()) > 0
        except OSError:
            pass
    return count


if __name__ == "__main__":
    print(answered(sys.argv[1], int(sys.argv[2])))
