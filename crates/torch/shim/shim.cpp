// The whole shim as one piece for the compiler.

#include "allocator.cpp"
#include "cuda.cpp"
#include "fused.cpp"
#include "kernel.cpp"
#include "libraries.cpp"
#include "loss.cpp"
#include "numerics.cpp"
#include "nvrtc.cpp"
#include "ranks.cpp"
#include "recompute.cpp"
#include "settings.cpp"
#include "transfer.cpp"
