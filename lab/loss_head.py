"""What the loss heads of others take for GPT-2, forward and backward: time, and memory beside weights, inputs and their gradients.
The same work as Lowtide's example `loss_head`. Weights in bf16 are what these libraries take; a training that keeps them in fp32 casts
them, and adds the gradient to one in fp32."""
import statistics, time
import torch

ROWS, WIDTH, VOCABULARY, ROUNDS, CALLS = 16 * 1024, 768, 50304, 9, 10

def measure(name, kind, head):
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = (torch.randn(VOCABULARY, WIDTH, device="cuda") * 0.02).to(kind).requires_grad_()
    targets = torch.randint(VOCABULARY, (ROWS,), device="cuda")
    call = lambda: head(hidden, weight.to(torch.bfloat16), targets).backward()
    for _ in range(3): call()
    torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    most = torch.cuda.max_memory_allocated() - before
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize(); begun = time.perf_counter()
        for _ in range(CALLS): call()
        torch.cuda.synchronize(); times.append((time.perf_counter() - begun) / CALLS)
    print(f"head {name}, weights {str(kind).removeprefix('torch.')}: {statistics.median(times) * 1e3:.3f} ms, {most / 2**20:.1f} MiB", flush=True)

if __name__ == "__main__":
    from cut_cross_entropy import linear_cross_entropy
    from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss
    liger = LigerFusedLinearCrossEntropyLoss()
    for kind in (torch.bfloat16, torch.float32):
        measure("cut-cross-entropy without small gradients", kind, lambda h, w, t: linear_cross_entropy(h, w, t))
        measure("cut-cross-entropy", kind, lambda h, w, t: linear_cross_entropy(h, w, t, filter_eps=None))
        measure("liger", kind, lambda h, w, t: liger(w, h, t))
