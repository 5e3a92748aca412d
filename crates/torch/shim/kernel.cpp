// Compiles and launches the cross-entropy kernel through NVRTC and the driver, both opened at run time.
//
// A row is read twice and written once: the logits of a large vocabulary are the largest tensor of a language model, and
// LibTorch's own path widens them to fp32 and passes over them about eight times.

#include "kernel.h"

#include "lowtide.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dirent.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <optional>

namespace {

constexpr int kThreads = 512;

const char* const kSource = R"(
typedef unsigned short u16;
typedef unsigned int u32;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

struct Bf16 {
  u16 bits;
  __device__ float wide() const { return __uint_as_float(u32(bits) << 16); }
  __device__ static Bf16 of(float x) {
    u32 u = __float_as_uint(x);
    // Rounding would carry a NaN over into zero.
    if ((u & 0x7fffffffu) > 0x7f800000u) return Bf16{0x7fff};
    return Bf16{u16((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
  }
};

struct Half {
  u16 bits;
  __device__ float wide() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
  __device__ static Half of(float x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return Half{h};
  }
};

struct Float {
  float value;
  __device__ float wide() const { return value; }
  __device__ static Float of(float x) { return Float{x}; }
};

// As many numbers as one 16-byte access holds.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T item[kCount];
};

// The largest value met and the sum of exp(value - largest), of two sets put together.
__device__ void merge(float& top, float& sum, float other_top, float other_sum) {
  float high = fmaxf(top, other_top);
  if (high == -INFINITY) return;
  sum = sum * __expf(top - high) + other_sum * __expf(other_top - high);
  top = high;
}

__device__ void merge_block(float& top, float& sum) {
  __shared__ float tops[32], sums[32];
  for (int lane = 16; lane > 0; lane >>= 1) {
    float other_top = __shfl_xor_sync(0xffffffffu, top, lane);
    float other_sum = __shfl_xor_sync(0xffffffffu, sum, lane);
    merge(top, sum, other_top, other_sum);
  }
  int warp = threadIdx.x >> 5;
  if ((threadIdx.x & 31) == 0) { tops[warp] = top; sums[warp] = sum; }
  __syncthreads();
  top = -INFINITY;
  sum = 0.f;
  for (int other = 0; other < blockDim.x >> 5; other++) merge(top, sum, tops[other], sums[other]);
}

// `vocabulary` is a multiple of the pack, and rows start on 16 bytes.
template <typename T>
__device__ void row_loss(T* logits, const long long* targets, float* losses, long long vocabulary, float gain) {
  T* row = logits + (long long)blockIdx.x * vocabulary;
  Pack<T>* packs = reinterpret_cast<Pack<T>*>(row);
  const long long count = vocabulary / Pack<T>::kCount;
  float top = -INFINITY, sum = 0.f;
  for (long long at = threadIdx.x; at < count; at += blockDim.x) {
    Pack<T> pack = packs[at];
    float high = -INFINITY;
    for (int k = 0; k < Pack<T>::kCount; k++) high = fmaxf(high, pack.item[k].wide());
    float part = 0.f;
    for (int k = 0; k < Pack<T>::kCount; k++) part += __expf(pack.item[k].wide() - high);
    if (high != -INFINITY) merge(top, sum, high, part);
  }
  merge_block(top, sum);
  const float log_sum = top + logf(sum);
  const long long target = targets[blockIdx.x];
  const bool ignored = target == -100;
  const bool outside = !ignored && (target < 0 || target >= vocabulary);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = ignored ? 0.f : outside ? NAN : log_sum - row[target].wide();
  }
  if (gain == 0.f) return;
  __syncthreads();
  for (long long at = threadIdx.x; at < count; at += blockDim.x) {
    Pack<T> pack = packs[at];
    for (int k = 0; k < Pack<T>::kCount; k++) {
      float chance = __expf(pack.item[k].wide() - log_sum);
      float hit = at * Pack<T>::kCount + k == target ? 1.f : 0.f;
      pack.item[k] = T::of(ignored ? 0.f : (chance - hit) * gain);
    }
    packs[at] = pack;
  }
}

#define KERNEL(name, T)                                                                                              \
  extern "C" __global__ void name(T* logits, const long long* targets, float* losses, long long vocabulary,          \
                                  float gain) {                                                                      \
    row_loss<T>(logits, targets, losses, vocabulary, gain);                                                          \
  }
KERNEL(loss_bf16, Bf16)
KERNEL(loss_half, Half)
KERNEL(loss_float, Float)
)";

// The functions used, by their C names in NVRTC and in the driver. Handles are opaque pointers in both.
struct Functions {
  int (*create_program)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile_program)(void*, int, const char* const*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
  int (*cubin_size)(void*, size_t*);
  int (*cubin)(void*, char*);
  int (*destroy_program)(void**);
  int (*load_module)(void**, const void*);
  int (*get_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*attribute)(int*, int, int);
};

template <typename Function>
bool bind(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

// NVRTC opens its table of built-in functions by name alone; opened here from its own folder, it is found wherever it is.
void open_builtins(void* nvrtc_function) {
  Dl_info info;
  if (dladdr(nvrtc_function, &info) == 0) return;
  const std::string path = info.dli_fname;
  const auto folder = path.substr(0, path.rfind('/'));
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const auto* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (name.rfind("libnvrtc-builtins.so", 0) == 0) dlopen((folder + "/" + name).c_str(), RTLD_LAZY | RTLD_GLOBAL);
  }
  closedir(entries);
}

std::optional<Functions> bind_all() {
  // LibTorch's own stub library brings NVRTC in with it, from wherever it was installed.
  void* compiler = dlopen("libcaffe2_nvrtc.so", RTLD_LAZY | RTLD_LOCAL);
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  Functions f;
  if (compiler == nullptr || driver == nullptr) return std::nullopt;
  const bool all = bind(compiler, "nvrtcCreateProgram", f.create_program) &&
                   bind(compiler, "nvrtcCompileProgram", f.compile_program) &&
                   bind(compiler, "nvrtcGetProgramLogSize", f.log_size) &&
                   bind(compiler, "nvrtcGetProgramLog", f.log) &&
                   bind(compiler, "nvrtcGetCUBINSize", f.cubin_size) && bind(compiler, "nvrtcGetCUBIN", f.cubin) &&
                   bind(compiler, "nvrtcDestroyProgram", f.destroy_program) &&
                   bind(driver, "cuModuleLoadData", f.load_module) &&
                   bind(driver, "cuModuleGetFunction", f.get_function) && bind(driver, "cuLaunchKernel", f.launch) &&
                   bind(RTLD_DEFAULT, "cudaDeviceGetAttribute", f.attribute);
  if (!all) return std::nullopt;
  open_builtins(reinterpret_cast<void*>(f.create_program));
  return f;
}

const std::optional<Functions>& functions() {
  static const std::optional<Functions> bound = bind_all();
  return bound;
}

// The kernels for one device, by kind of number; where there are none, why.
struct Kernels {
  std::map<at::ScalarType, void*> by_kind;
  std::string problem;
};

// The machine code for a card, or an empty text and the compiler's words in `problem`.
std::string machine_code(const Functions& f, const std::string& architecture, std::string& problem) {
  const char* const options[] = {architecture.c_str(), "--std=c++17"};
  void* program = nullptr;
  if (f.create_program(&program, kSource, "lowtide_loss.cu", 0, nullptr, nullptr) != 0) return {};
  std::string code;
  size_t size = 0;
  if (f.compile_program(program, 2, options) == 0 && f.cubin_size(program, &size) == 0) {
    code.resize(size);
    if (f.cubin(program, code.data()) != 0) code.clear();
  } else if (f.log_size(program, &size) == 0) {
    problem.resize(size);
    f.log(program, problem.data());
  }
  f.destroy_program(&program);
  return code;
}

Kernels compile(const Functions& f, int device) {
  int major = 0, minor = 0;
  if (f.attribute(&major, 75, device) != 0 || f.attribute(&minor, 76, device) != 0) {
    return {{}, "the driver did not say what the device can do"};
  }
  Kernels kernels;
  const auto architecture = "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
  const auto code = machine_code(f, architecture, kernels.problem);
  void* module = nullptr;
  if (code.empty()) return kernels;
  if (f.load_module(&module, code.data()) != 0) return {{}, "the driver did not take the machine code"};
  const std::pair<at::ScalarType, const char*> names[] = {
      {at::kBFloat16, "loss_bf16"}, {at::kHalf, "loss_half"}, {at::kFloat, "loss_float"}};
  for (const auto& [kind, name] : names) {
    void* kernel = nullptr;
    if (f.get_function(&kernel, module, name) == 0) kernels.by_kind[kind] = kernel;
  }
  return kernels;
}

const Kernels& kernels_for(int device) {
  static std::mutex mutex;
  static std::map<int, Kernels> compiled;
  static const Kernels none{{}, "NVRTC, the compiler that comes with CUDA, was not found"};
  if (!functions()) return none;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = compiled.find(device);
  if (found == compiled.end()) found = compiled.emplace(device, compile(*functions(), device)).first;
  return found->second;
}

bool packs_fit(const at::Tensor& logits) {
  const auto pack = 16 / logits.element_size();
  return logits.is_contiguous() && logits.size(1) % static_cast<int64_t>(pack) == 0 &&
         reinterpret_cast<uintptr_t>(logits.const_data_ptr()) % 16 == 0;
}

}  // namespace

namespace lowtide {

bool cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, double gain) {
  if (!logits.is_cuda() || logits.size(0) == 0 || !packs_fit(logits)) return false;
  // Loading and starting a kernel act on the current device.
  const c10::DeviceGuard guard(logits.device());
  const auto& kernels = kernels_for(logits.device().index()).by_kind;
  const auto kernel = kernels.find(logits.scalar_type());
  if (kernel == kernels.end()) return false;
  void* logits_data = logits.mutable_data_ptr();
  const void* targets_data = targets.const_data_ptr();
  void* losses_data = losses.mutable_data_ptr();
  long long vocabulary = logits.size(1);
  float narrow_gain = static_cast<float>(gain);
  void* arguments[] = {&logits_data, &targets_data, &losses_data, &vocabulary, &narrow_gain};
  void* stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(logits.device()).native_handle();
  const int failed = functions()->launch(kernel->second, static_cast<unsigned>(logits.size(0)), 1, 1, kThreads, 1, 1, 0, stream,
                                         arguments, nullptr);
  TORCH_CHECK(failed == 0, "the cross-entropy kernel could not be started: driver error ", failed);
  return true;
}

}  // namespace lowtide

extern "C" {

// Fails, with the reason, where the kernel is not used on a device.
Status lt_loss_kernel_check(int32_t device) noexcept {
  return lowtide::guarded([&] {
    const c10::DeviceGuard guard(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    const auto& kernels = kernels_for(device);
    TORCH_CHECK(!kernels.by_kind.empty(), kernels.problem);
  });
}
}
