// The C border between LibTorch and the Rust side of this crate.
//
// Every function that can fail returns a Status; nothing ever throws across the border, and each function of it is noexcept
// (a test looks for that). Tensors cross it as at::Tensor*
// exactly as tch hands them out: a pointer that comes in stays the caller's, a pointer that goes out is the caller's to free.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {

enum StatusKind : int32_t { kOk = 0, kOutOfMemory = 1, kError = 2 };

// `message` is allocated with malloc and freed by lt_text_free; null when kind is kOk.
struct Status {
  int32_t kind;
  char* message;
};
}

namespace lowtide {

inline Status failed(StatusKind kind, const char* message) {
  return Status{kind, strdup(message)};
}

// Runs `body` and turns whatever it throws into a Status.
template <typename Body>
Status guarded(Body&& body) noexcept {
  try {
    body();
    return Status{kOk, nullptr};
  } catch (const c10::OutOfMemoryError& error) {
    return failed(kOutOfMemory, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return failed(kError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(kError, error.what());
  } catch (...) {
    return failed(kError, "an exception of unknown type");
  }
}

// Runs what has nobody to hear of an error: the end of something that failed already, or a destructor.
template <typename Body>
void quietly(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
  }
}

// Throws again, on the C++ side, what a Status carried across from Rust.
inline void rethrow(int32_t kind, const std::string& message) {
  TORCH_CHECK_WITH(OutOfMemoryError, kind != kOutOfMemory, message);
  TORCH_CHECK(kind == kOk, message);
}

// Whether what is asked of the device is recorded at present.
inline std::atomic<bool> capturing{false};

inline std::vector<at::Tensor> list(at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; i++) out.push_back(*tensors[i]);
  return out;
}

// The kind in which products with a tensor are computed: autocast's where it is on.
inline at::ScalarType product_kind(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : tensor.scalar_type();
}

}  // namespace lowtide
