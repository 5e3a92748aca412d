// NVRTC and the driver, both opened at run time: kernels are compiled for the card they run on.

#include "nvrtc.h"

#include "cuda_half.h"
#include "lowtide.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>

namespace {

// What every source begins with: kinds of numbers, and as many of them as one access holds.
const char* const kPrelude = R"(
typedef unsigned short u16;
typedef unsigned int u32;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

struct Bf16 {
  u16 bits;
  __device__ float wide() const { return __uint_as_float(u32(bits) << 16); }
  __device__ static Bf16 of(float x) {
#if __CUDA_ARCH__ >= 800
    u16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return Bf16{narrow};
#endif
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
  int (*resident)(int*, void*, int, size_t);
};

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
  const bool all = lowtide::bind(compiler, "nvrtcCreateProgram", f.create_program) &&
                   lowtide::bind(compiler, "nvrtcCompileProgram", f.compile_program) &&
                   lowtide::bind(compiler, "nvrtcGetProgramLogSize", f.log_size) &&
                   lowtide::bind(compiler, "nvrtcGetProgramLog", f.log) &&
                   lowtide::bind(compiler, "nvrtcGetCUBINSize", f.cubin_size) && lowtide::bind(compiler, "nvrtcGetCUBIN", f.cubin) &&
                   lowtide::bind(compiler, "nvrtcDestroyProgram", f.destroy_program) &&
                   lowtide::bind(driver, "cuModuleLoadData", f.load_module) &&
                   lowtide::bind(driver, "cuModuleGetFunction", f.get_function) && lowtide::bind(driver, "cuLaunchKernel", f.launch) &&
                   lowtide::bind(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor", f.resident) &&
                   lowtide::bind(RTLD_DEFAULT, "cudaDeviceGetAttribute", f.attribute);
  if (!all) return std::nullopt;
  open_builtins(reinterpret_cast<void*>(f.create_program));
  return f;
}

const std::optional<Functions>& functions() {
  static const std::optional<Functions> bound = bind_all();
  return bound;
}

// The machine code for a card, or an empty text and the compiler's words in `problem`.
std::string machine_code(const Functions& f, const std::string& source, const std::string& architecture, std::string& problem) {
  const char* const options[] = {architecture.c_str(), "--std=c++17"};
  void* program = nullptr;
  if (f.create_program(&program, source.c_str(), "lowtide.cu", 0, nullptr, nullptr) != 0) return {};
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

// Numbers of attributes in `cudaDeviceGetAttribute`.
constexpr int kMultiprocessors = 16, kCacheBytes = 38, kMajor = 75, kMinor = 76;

}  // namespace

namespace lowtide {

Program::Compiled Program::compile(int device, const std::string& instance) const {
  if (!functions()) return {nullptr, "NVRTC, the compiler that comes with CUDA, was not found", {}};
  const auto& f = *functions();
  int major = 0, minor = 0;
  if (f.attribute(&major, kMajor, device) != 0 || f.attribute(&minor, kMinor, device) != 0) {
    return {nullptr, "the driver did not say what the device can do", {}};
  }
  Compiled compiled;
  const auto architecture = "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
  const auto code = machine_code(f, kPrelude + instance + source_, architecture, compiled.problem);
  if (code.empty()) return compiled;
  // Loading acts on the current device.
  const c10::DeviceGuard guard(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  if (f.load_module(&compiled.module, code.data()) != 0) compiled.problem = "the driver did not take the machine code";
  return compiled;
}

Program::Compiled& Program::on(int device, const std::string& instance) {
  const std::pair<int, std::string> key(device, instance);
  const auto found = compiled_.find(key);
  return found != compiled_.end() ? found->second : compiled_.emplace(key, compile(device, instance)).first->second;
}

void* Program::kernel(const at::Device& device, const std::string& instance, const std::string& name) {
  if (!device.is_cuda()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& compiled = on(device.index(), instance);
  if (compiled.module == nullptr) return nullptr;
  const auto found = compiled.kernels.find(name);
  if (found != compiled.kernels.end()) return found->second;
  void* kernel = nullptr;
  if (functions()->get_function(&kernel, compiled.module, name.c_str()) != 0) kernel = nullptr;
  return compiled.kernels[name] = kernel;
}

std::string Program::problem(int device, const std::string& instance) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return on(device, instance).problem;
}

void launch(void* kernel, const at::Device& device, int64_t blocks, int threads, void** arguments) {
  const c10::DeviceGuard guard(device);
  void* stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device).native_handle();
  const int failed = functions()->launch(kernel, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1, 0,
                                         stream, arguments, nullptr);
  TORCH_CHECK(failed == 0, "a kernel could not be started: driver error ", failed);
}

int multiprocessors(const at::Device& device) {
  int count = 0;
  return functions() && functions()->attribute(&count, kMultiprocessors, device.index()) == 0 ? count : 1;
}

int64_t cache_bytes(const at::Device& device) {
  int bytes = 0;
  return functions() && functions()->attribute(&bytes, kCacheBytes, device.index()) == 0 ? bytes : 0;
}

int64_t resident_blocks(void* kernel, const at::Device& device, int threads) {
  const c10::DeviceGuard guard(device);
  int count = 0;
  return functions()->resident(&count, kernel, threads, 0) == 0 ? std::max(count, 1) : 1;
}

const char* name_of(at::ScalarType kind) {
  switch (kind) {
    case at::kBFloat16: return "Bf16";
    case at::kHalf: return "Half";
    case at::kFloat: return "Float";
    default: return nullptr;
  }
}

}  // namespace lowtide
