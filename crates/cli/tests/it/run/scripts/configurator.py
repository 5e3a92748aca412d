"""Overrides the settings of the script that executes this with `--key=value` words and files of settings."""

import sys

for word in sys.argv[1:]:
    if word.startswith("--"):
        key, value = word[2:].split("=")
        assert key in globals(), key
        globals()[key] = type(globals()[key])(value)
    else:
        exec(open(word).read())
