// What the numerical libraries on the host are set to, as they say it themselves, and their threads.
//
// MKL lies inside LibTorch and offers a part of its functions there; they are looked up by name, as are OpenMP's, so that a
// LibTorch without them links too. OpenMP reads its variables when it is loaded; what can be changed later is set by
// its functions.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <atomic>

extern "C" {

// -1 where nobody tells. Branches are those of MKL_CBWR_..., with 0x10000 for strict.
struct LibraryFacts {
  int32_t threads;
  int32_t openmp_dynamic;
  int32_t mkl_threads;
  int32_t mkl_dynamic;
  int32_t mkl_setting;
  int32_t mkl_auto_branch;
};
}

namespace {

template <typename Function>
Function* found(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

int32_t asked(const char* name) {
  auto* function = found<int()>(name);
  return function == nullptr ? -1 : function();
}

struct Team {
  std::atomic<int32_t> size{1};
  int (*threads)();
};

void note_size(void* data) {
  auto* team = static_cast<Team*>(data);
  team->size.store(team->threads());
}

}  // namespace

extern "C" {

Status lt_library_facts(LibraryFacts* out) noexcept {
  return lowtide::guarded([&] {
    auto* setting = found<int(int)>("mkl_serv_cbwr_get");
    *out = {at::get_num_threads(),
            asked("omp_get_dynamic"),
            asked("MKL_Get_Max_Threads"),
            asked("mkl_serv_get_dynamic"),
            setting == nullptr ? -1 : setting(/*MKL_CBWR_ALL=*/~0),
            asked("mkl_serv_cbwr_get_auto_branch")};
  });
}

// The instruction set of LibTorch's own loops, then the versions of LibTorch, MKL and oneDNN, each on a line of its own.
Status lt_library_texts(char** out) noexcept {
  return lowtide::guarded([&] {
    const auto text = at::get_cpu_capability() + "\n" + TORCH_VERSION + "\n" + at::get_mkl_version() + "\n" +
                      at::get_mkldnn_version();
    *out = strdup(text.c_str());
    TORCH_CHECK(*out != nullptr, "no memory for the versions of the libraries");
  });
}

// Fixes the number of threads that share an operation, of LibTorch and of MKL; neither may take fewer from now on.
// `team` is how many OpenMP then gives.
Status lt_set_threads(int32_t threads, int32_t* team) noexcept {
  return lowtide::guarded([&] {
    if (auto* dynamic = found<void(int)>("omp_set_dynamic")) dynamic(0);
    at::set_num_threads(threads);
    *team = threads;
    auto* parallel = found<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
    Team counted{{1}, found<int()>("omp_get_num_threads")};
    if (parallel == nullptr || counted.threads == nullptr) return;
    parallel(note_size, &counted, 0, 0);
    *team = counted.size.load();
  });
}

// Calls each function of MKL once that threads of LibTorch share, by one thread alone.
//
// MKL looks for the code of a vector function when it is first called. In MKL 2024.2, which LibTorch 2.11 contains, threads
// that all make the first call may get a less exact one for that call (pytorch/pytorch#188792). The random numbers
// are drawn from a generator of this function's own.
Status lt_warm_up_libraries() noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator();
    for (const auto kind : {at::kFloat, at::kDouble}) {
      const auto x = at::full({16, 16}, 0.5, kind);
      for (auto* function : {&at::acos, &at::asin, &at::atan, &at::cos, &at::erf, &at::erfc, &at::erfinv, &at::exp,
                             &at::log, &at::log10, &at::log2, &at::sin, &at::sqrt, &at::tan, &at::tanh, &at::trunc}) {
        function(x);
      }
      at::mm(x, x);
      at::empty({16}, kind).bernoulli_(0.5, generator);
    }
  });
}
}
