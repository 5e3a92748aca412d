"""Settings from files and from `--key=value`, printed as they are taken."""
import sys

for word in sys.argv[1:]:
    if '=' not in word:
        print(f"Overriding config with {word}:")
        text = open(word).read()
        print(text)
        exec(text)
    else:
        key, value = word.removeprefix('--').split('=')
        print(f"Overriding: {key} = {value}")
        globals()[key] = type(globals()[key])(value)
