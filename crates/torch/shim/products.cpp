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
#include <optional>
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
  const bool all = lowtide::bind(RTLD_DEFAULT, "cublasLtCreate", f.create) && lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulDescCreate", f.create_product) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulDescSetAttribute", f.set_product) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulDescDestroy", f.destroy_product) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatrixLayoutCreate", f.create_layout) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatrixLayoutDestroy", f.destroy_layout) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulPreferenceCreate", f.create_preference) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulPreferenceSetAttribute", f.set_preference) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulPreferenceDestroy", f.destroy_preference) &&
                   lowtide::bind(RTLD_DEFAULT, "cublasLtMatmulAlgoGetHeuristic", f.candidates) && lowtide::bind(RTLD_DEFAULT, "cublasLtMatmul", f.multiply);
  return all ? std::optional<BlasLt>(f) : std::nullopt;
}

const std::optional<BlasLt>& blas_lt() {
  static const std::optional<BlasLt> found = found_blas_lt();
  return found;
}

// Products below this are over before a choice could matter.
constexpr double kLeastWork = 4e9;
// What a program may take besides its matrices, and what is taken to try those that add.
constexpr size_t kWorkspace = 1 << 20, kMostScratch = 32 << 20;
constexpr int kCandidates = 12, kRounds = 3;
// How much faster a candidate must be than LibTorch's product.
constexpr double kWorthIt = 0.985, kFarBehind = 1.05;

c10::Stream stream_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device); }

// Whether a matrix lies in rows or in columns, one after the other, so that cuBLASLt can take it: nothing if neither.
std::optional<bool> is_turned(const at::Tensor& matrix) {
  if (reinterpret_cast<uintptr_t>(matrix.const_data_ptr()) % 16 != 0) return std::nullopt;
  if (matrix.stride(1) == 1 && matrix.stride(0) == matrix.size(1)) return false;
  if (matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0)) return true;
  return std::nullopt;
}

// Device, kinds of what comes in and out, rows, what is added up over, columns; whether left and right are turned; whether there is a
// bias; whether it is added to what is there.
struct ProductShape {
  int device, kind, out_kind;
  int64_t rows, inner, columns;
  bool left_is_turned, right_is_turned, has_bias, adds;

  auto all() const {
    return std::tie(device, kind, out_kind, rows, inner, columns, left_is_turned, right_is_turned, has_bias, adds);
  }
  bool operator<(const ProductShape& other) const { return all() < other.all(); }
};

// A product of one shape: how it is described to cuBLASLt, and the program that makes it.
class Plan {
 public:
  Plan(void* handle, const ProductShape& shape) : handle_(handle), adds_(shape.adds) {
    const auto& f = *blas_lt();
    bool done = handle != nullptr && f.create_product(&product_, kComputeInFloat, kFloatNumbers) == 0;
    // Turned around: columns of the result are rows of ours, so the right matrix comes first.
    done = done && (!shape.right_is_turned || f.set_product(product_, kLeftIsTurned, &kTurned, sizeof kTurned) == 0);
    done = done && (!shape.left_is_turned || f.set_product(product_, kRightIsTurned, &kTurned, sizeof kTurned) == 0);
    done = done && (!shape.has_bias || f.set_product(product_, kEpilogue, &kEpilogueBias, sizeof kEpilogueBias) == 0);
    done = done && layout(0, shape.kind, shape.columns, shape.inner, shape.right_is_turned) &&
           layout(1, shape.kind, shape.inner, shape.rows, shape.left_is_turned) && layout(2, shape.out_kind, shape.columns, shape.rows, false);
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

  // Tries the candidates, and `usual` beside them, and leaves the choice to `make`. What is in `out` then is nobody's.
  template <typename Usual>
  void choose(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias, Usual&& usual) {
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
  }

  // Makes it by the program that was chosen; false where LibTorch is to do it.
  bool make(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) {
    if (!chosen_) return false;
    at::Tensor workspace;
    if (chosen_->workspace > 0) workspace = at::empty({static_cast<int64_t>(chosen_->workspace)}, out.options().dtype(at::kByte));
    return run(chosen_->algorithm, workspace, out, left, right, bias);
  }

 private:
  // `rows` and `columns` are those that enter the product; the numbers of a column lie one after the other.
  bool layout(int index, int kind, int64_t rows, int64_t columns, bool is_turned) {
    if (is_turned) std::swap(rows, columns);
    return blas_lt()->create_layout(&layouts_[index], kind, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows) == 0;
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
           const at::Tensor& bias) {
    const auto& f = *blas_lt();
    const c10::DeviceGuard guard(out.device());
    if (bias.defined()) {
      const void* place = bias.const_data_ptr();
      if (f.set_product(product_, kBiasPlace, &place, sizeof place) != 0) return false;
    }
    const float one = 1.f, kept = adds_ ? 1.f : 0.f;
    void* to = out.mutable_data_ptr();
    return f.multiply(handle_, product_, &one, right.const_data_ptr(), layouts_[0], left.const_data_ptr(), layouts_[1], &kept, to, layouts_[2], to,
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
  bool adds_;
  void* product_ = nullptr;
  std::array<void*, 3> layouts_{};
  bool is_ready_ = false;
  std::optional<Candidate> chosen_;
};

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

// What cuBLASLt calls a kind of number, or -1.
int kind_of(at::ScalarType kind) {
  switch (kind) {
    case at::kBFloat16: return kBFloat16Numbers;
    case at::kHalf: return kHalfNumbers;
    case at::kFloat: return kFloatNumbers;
    default: return -1;
  }
}

// The shape of a product for which a program may be chosen.
std::optional<ProductShape> shape_of(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                                     bool adds) {
  const double work = 2.0 * static_cast<double>(out.numel()) * static_cast<double>(left.size(1));
  const auto kind = left.scalar_type();
  if (!out.is_cuda() || work < kLeastWork || at::globalContext().deterministicAlgorithms() || !blas_lt()) return std::nullopt;
  if (!at::isReducedFloatingType(kind) || right.scalar_type() != kind || kind_of(out.scalar_type()) < 0) return std::nullopt;
  if (bias.defined() && (bias.scalar_type() != kind || !bias.is_contiguous())) return std::nullopt;
  const auto of_left = is_turned(left), of_right = is_turned(right), of_out = is_turned(out);
  if (!of_left || !of_right || of_out != false) return std::nullopt;
  return ProductShape{out.get_device(), kind_of(kind), kind_of(out.scalar_type()), out.size(0), left.size(1),
                      out.size(1), *of_left, *of_right, bias.defined(), adds};
}

// Makes a product by the program that is, or now will be, chosen for its shape. `usual` makes it LibTorch's way into the tensor it is given.
template <typename Usual>
void make(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias, bool adds, Usual&& usual) {
  const auto shape = shape_of(out, left, right, bias, adds);
  if (!shape) return usual(out);
  auto& kept = plans();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  auto found = kept.all.find(*shape);
  if (found == kept.all.end() && !lowtide::capturing && !(adds && out.nbytes() > kMostScratch)) {
    auto plan = std::make_unique<Plan>(kept.handle(out.device()), *shape);
    auto scratch = adds ? at::zeros_like(out) : out;
    plan->choose(scratch, left, right, bias, [&] { usual(scratch); });
    found = kept.all.emplace(*shape, std::move(plan)).first;
  }
  if (found == kept.all.end() || !found->second->make(out, left, right, bias)) usual(out);
}

}  // namespace

namespace lowtide {

void product_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) {
  make(out, left, right, bias, /*adds=*/false, [&](at::Tensor& to) {
    if (bias.defined()) {
      at::addmm_out(to, bias, left, right);
    } else {
      at::mm_out(to, left, right);
    }
  });
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) {
  auto out = at::empty({left.size(0), right.size(1)}, left.options());
  product_into(out, left, right, bias);
  return out;
}

void add_product_to(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  make(sum, left, right, /*bias=*/at::Tensor(), /*adds=*/true, [&](at::Tensor& to) { at::addmm_out(to, to, left, right, at::kFloat); });
}

}  // namespace lowtide
