"""A model that takes memory as the tensors of a transformer in fp32 do."""
import mmap


def tensor(size):
    try:
        return mmap.mmap(-1, size)
    except (OSError, ValueError):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            f"allocate {size} bytes. Error code 12 (Cannot allocate memory)") from None


class Loss:
    def __init__(self, kept, width):
        self.kept, self.width = kept, width

    def backward(self):
        gradients = [tensor(16 * self.width), tensor(16 * self.width)]
        self.kept.clear()
        gradients.clear()


class Model:
    def __init__(self, layers, width, vocabulary, length):
        self.layers, self.width, self.vocabulary, self.length = layers, width, vocabulary, length
        self.parameters = 12 * layers * width * width + vocabulary * width
        self.weights = tensor(4 * self.parameters)

    def __call__(self, batch):
        return self.forward(batch)

    def forward(self, batch):
        tokens = batch * self.length
        values = 4 * tokens * self.width
        kept = []
        for _ in range(self.layers):
            kept += [tensor(values), tensor(3 * values), tensor(values), tensor(values), tensor(values), tensor(values)]
            self.mlp(kept, values)
        kept += [tensor(4 * tokens * self.vocabulary) for _ in range(3)]
        return Loss(kept, tokens)

    def mlp(self, kept, values):
        kept.append(tensor(4 * values))
        kept.append(self.gelu(values))
        kept.append(tensor(values))

    def gelu(self, values):
        return tensor(4 * values)
