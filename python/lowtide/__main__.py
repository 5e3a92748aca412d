"""``python -m lowtide``: the program."""

import os
import sys

from ._program import find

program = find()
os.execv(program, [program, *sys.argv[1:]])
