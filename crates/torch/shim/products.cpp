// Which program makes a product.
//
// cuBLAS chooses by rules, and its first choice is up to a sixth slower than its best for the shapes of a transformer. So the first time
// a shape is met, its candidates are tried on the tensors at hand, beside LibTorch's own product, and the fastest is taken from then on.
// Candidates differ in how they add up, and a clock decides among them: two runs may round differently. A deterministic run therefore
// leaves all to LibTorch. Nothing is tried while a graph is recorded.

#include "products.h"

#include "cuda_half.h"
#include "lowtide.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace {

// As cuBLASLt has them.
struct Algorithm {
  uint64_t data[8];
};
struct Candidate {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
constexpr int kComputeInFloat = 68, kFloatNumbers = 0, kHalfNumbers = 2, kBFloat16Numbers = 14;
constexpr int kLeftIsTurned = 3, kRightIsTurned = 4, kEpilogue = 7, kBiasPlace = 8;
constexpr int kTurned = 1, kEpilogueBias = 4, kMostWorkspace = 1;

struct BlasLt {
  int (*create)(void**);
  int (*create_product)(void**, int, int);
  int (*set_product)(void*, int, const void*, size_t);
  int (*destroy_product)(void*);
  int (*create_layout)(void**, int, uint64_t, uint64_t, int64_t);
  int (*destroy_layout)(void*);
  int (*create_preference)(void**);
  int (*set_preference)(void*, int, const void*, size_t);
  int (*destroy_preference)(void*);
  int (*candidates)(void*, void*, void*, void*, void*, void*, void*, int, Candidate*, int*);
  int (*multiply)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
                  const Algorithm*, void*, size_t, void*);
};

std::optional<BlasLt> found_blas_lt() {
  BlasLt f;
  const bool all = lowtide::find("cublasLtCreate", f.create) && lowtide::find("cublasLtMatmulDescCreate", f.create_product) &&
                   lowtide::find("cublasLtMatmulDescSetAttribute", f.set_product) &&
                   lowtide::find("cublasLtMatmulDescDestroy", f.destroy_product) &&
                   lowtide::find("cublasLtMatrixLayoutCreate", f.create_layout) &&
                   lowtide::find("cublasLtMatrixLayoutDestroy", f.destroy_layout) &&
                   lowtide::find("cublasLtMatmulPreferenceCreate", f.create_preference) &&
                   lowtide::find("cublasLtMatmulPreferenceSetAttribute", f.set_preference) &&
                   lowtide::find("cublasLtMatmulPreferenceDestroy", f.destroy_preference) &&
                   lowtide::find("cublasLtMatmulAlgoGetHeuristic", f.candidates) && lowtide::find("cublasLtMatmul", f.multiply);
  return all ? std::optional<BlasLt>(f) : std::nullopt;
}

const std::optional<BlasLt>& blas_lt() {
  static const std::optional<BlasLt> found = found_blas_lt();
  return found;
}

// Products below this are over before a choice could matter.
constexpr double kLeastWork = 4e9;
// What a program may take besides its matrices.
constexpr size_t kWorkspace = 1 << 20;
constexpr int kCandidates = 12, kRounds = 3;
// How much faster a candidate must be than LibTorch's product.
constexpr double kWorthIt = 0.985, kFarBehind = 1.05;

c10::Stream stream_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device); }

// A matrix of rows as cuBLASLt sees it, which knows columns only: `columns` long columns, or the same turned.
struct Matrix {
  bool is_turned;
  int64_t step;

  static std::optional<Matrix> of(const at::Tensor& tensor) {
    if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 != 0) return std::nullopt;
    if (tensor.stride(1) == 1 && tensor.stride(0) == tensor.size(1)) return Matrix{false, tensor.size(1)};
    if (tensor.stride(0) == 1 && tensor.stride(1) == tensor.size(0)) return Matrix{true, tensor.size(0)};
    return std::nullopt;
  }
};

// One shape of product: how it is described to cuBLASLt, and the program that makes it.
class Plan {
 public:
  Plan(void* handle, int kind, int64_t rows, int64_t inner, int64_t columns, Matrix left, Matrix right, bool has_bias) : handle_(handle) {
    const auto& f = *blas_lt();
    bool done = handle != nullptr && f.create_product(&product_, kComputeInFloat, kFloatNumbers) == 0;
    // Turned around: columns of the result are rows of ours, so the right matrix comes first.
    done = done && (!right.is_turned || f.set_product(product_, kLeftIsTurned, &kTurned, sizeof kTurned) == 0);
    done = done && (!left.is_turned || f.set_product(product_, kRightIsTurned, &kTurned, sizeof kTurned) == 0);
    done = done && (!has_bias || f.set_product(product_, kEpilogue, &kEpilogueBias, sizeof kEpilogueBias) == 0);
    done = done && layout(0, kind, columns, inner, right) && layout(1, kind, inner, rows, left) &&
           layout(2, kind, columns, rows, Matrix{false, columns});
    is_ready_ = done;
  }

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  ~Plan() {
    const auto& f = *blas_lt();
    for (auto* layout : layouts_) {
      if (layout != nullptr) f.destroy_layout(layout);
    }
    if (product_ != nullptr) f.destroy_product(product_);
  }

  // Tries the candidates, and `usual` beside them; the last to run is the one that is taken.
  template <typename Usual>
  void choose(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias, Usual&& usual) {
    const auto candidates = is_ready_ ? all_candidates() : std::vector<Candidate>();
    const auto workspace = at::empty({static_cast<int64_t>(kWorkspace)}, out.options().dtype(at::kByte));
    constexpr auto kNever = std::numeric_limits<double>::infinity();
    std::vector<double> times(candidates.size(), 0.0);
    double usually = kNever, best = kNever;
    for (int round = 0; round < kRounds; round++) {
      usually = std::min(usually, milliseconds(out.device(), usual));
      for (size_t i = 0; i < candidates.size(); i++) {
        // Those that are far behind are not tried again.
        if (times[i] > best * kFarBehind) continue;
        bool works = true;
        times[i] = milliseconds(out.device(), [&] { works = works && run(candidates[i].algorithm, workspace, out, left, right, bias); });
        if (!works) times[i] = kNever;
        if (times[i] >= best) continue;
        best = times[i];
        chosen_ = candidates[i];
      }
    }
    if (best > usually * kWorthIt) chosen_.reset();
    if (!make(out, left, right, bias)) usual();
  }

  // Makes it by the program that was chosen; false where LibTorch is to do it.
  bool make(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
    if (!chosen_) return false;
    at::Tensor workspace;
    if (chosen_->workspace > 0) workspace = at::empty({static_cast<int64_t>(chosen_->workspace)}, out.options().dtype(at::kByte));
    return run(chosen_->algorithm, workspace, out, left, right, bias);
  }

 private:
  // `rows` and `columns` are those that enter the product.
  bool layout(int index, int kind, int64_t rows, int64_t columns, Matrix matrix) {
    if (matrix.is_turned) std::swap(rows, columns);
    return blas_lt()->create_layout(&layouts_[index], kind, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), matrix.step) == 0;
  }

  std::vector<Candidate> all_candidates() {
    const auto& f = *blas_lt();
    std::vector<Candidate> found(kCandidates);
    int count = 0;
    void* preference = nullptr;
    if (f.create_preference(&preference) != 0) return {};
    const bool done = f.set_preference(preference, kMostWorkspace, &kWorkspace, sizeof kWorkspace) == 0 &&
                      f.candidates(handle_, product_, layouts_[0], layouts_[1], layouts_[2], layouts_[2], preference, kCandidates, found.data(),
                                   &count) == 0;
    f.destroy_preference(preference);
    found.resize(done ? static_cast<size_t>(count) : 0);
    return found;
  }

  bool run(const Algorithm& algorithm, const at::Tensor& workspace, const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
           const std::optional<at::Tensor>& bias) {
    const auto& f = *blas_lt();
    const c10::DeviceGuard guard(out.device());
    if (bias) {
      const void* place = bias->const_data_ptr();
      if (f.set_product(product_, kBiasPlace, &place, sizeof place) != 0) return false;
    }
    const float one = 1.f, none = 0.f;
    void* to = out.mutable_data_ptr();
    return f.multiply(handle_, product_, &one, right.const_data_ptr(), layouts_[0], left.const_data_ptr(), layouts_[1], &none, to, layouts_[2], to,
                      layouts_[2], &algorithm, workspace.defined() ? workspace.mutable_data_ptr() : nullptr,
                      workspace.defined() ? workspace.nbytes() : 0, stream_of(out.device()).native_handle()) == 0;
  }

  // Twice in a row, so that what a start costs is hidden.
  template <typename Body>
  static double milliseconds(const at::Device& device, Body&& body) {
    const auto stream = stream_of(device);
    c10::Event begun(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT), ended(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    body();
    begun.record(stream);
    body();
    body();
    ended.record(stream);
    ended.synchronize();
    return begun.elapsedTime(ended);
  }

  void* handle_;
  void* product_ = nullptr;
  std::array<void*, 3> layouts_{};
  bool is_ready_ = false;
  std::optional<Candidate> chosen_;
};

// Device, kind, rows, what is added up over, columns; whether left and right are turned; whether there is a bias.
using ProductShape = std::tuple<int, int, int64_t, int64_t, int64_t, bool, bool, bool>;

struct Plans {
  std::mutex mutex;
  std::map<int, void*> handles;
  std::map<ProductShape, std::unique_ptr<Plan>> all;

  // cuBLASLt's own state for a device; null where it has none.
  void* handle(const at::Device& device) {
    auto& kept = handles[device.index()];
    const c10::DeviceGuard guard(device);
    if (kept == nullptr && blas_lt()->create(&kept) != 0) kept = nullptr;
    return kept;
  }
};

Plans& plans() {
  static Plans kept;
  return kept;
}

int kind_of(at::ScalarType kind) { return kind == at::kBFloat16 ? kBFloat16Numbers : kind == at::kHalf ? kHalfNumbers : -1; }

bool may_choose(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  const auto kind = out.scalar_type();
  const double work = 2.0 * static_cast<double>(out.numel()) * static_cast<double>(left.size(1));
  return out.is_cuda() && kind_of(kind) >= 0 && left.scalar_type() == kind && right.scalar_type() == kind &&
         (!bias || (bias->scalar_type() == kind && bias->is_contiguous())) && work >= kLeastWork && out.is_contiguous() &&
         reinterpret_cast<uintptr_t>(out.const_data_ptr()) % 16 == 0 &&
         !at::globalContext().deterministicAlgorithms() && blas_lt();
}

}  // namespace

namespace lowtide {

void product_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  const auto usual = [&] {
    if (bias) {
      at::addmm_out(out, *bias, left, right);
    } else {
      at::mm_out(out, left, right);
    }
  };
  if (!may_choose(out, left, right, bias)) return usual();
  const auto of_left = Matrix::of(left), of_right = Matrix::of(right);
  if (!of_left || !of_right) return usual();
  const auto kind = kind_of(out.scalar_type());
  const auto rows = out.size(0), inner = left.size(1), columns = out.size(1);
  const ProductShape shape(out.get_device(), kind, rows, inner, columns, of_left->is_turned, of_right->is_turned, bias.has_value());
  auto& kept = plans();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  const auto found = kept.all.find(shape);
  if (found != kept.all.end()) {
    if (!found->second->make(out, left, right, bias)) usual();
  } else if (capturing) {
    usual();
  } else {
    auto plan = std::make_unique<Plan>(kept.handle(out.device()), kind, rows, inner, columns, *of_left, *of_right, bias.has_value());
    plan->choose(out, left, right, bias, usual);
    kept.all.emplace(shape, std::move(plan));
  }
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  auto out = at::empty({left.size(0), right.size(1)}, left.options());
  product_into(out, left, right, bias);
  return out;
}

}  // namespace lowtide
