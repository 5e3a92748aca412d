"""Reads a folder of event files by TensorBoard's own reader and prints what it found as lines.

    python read_back.py FOLDER
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main() -> None:
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    for tag in sorted(tags["scalars"]):
        for event in events.Scalars(tag):
            print(f"scalar {tag} {event.step} {event.wall_time} {event.value}")
    for tag in sorted(tags["tensors"]):
        plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
        for event in events.Tensors(tag):
            shape = [dim.size for dim in event.tensor_proto.tensor_shape.dim]
            for text in event.tensor_proto.string_val:
                print(f"{plugin} {tag} {event.step} {event.wall_time} {shape} {text.decode()!r}")


main()
