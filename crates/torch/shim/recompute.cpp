// Recompute: a node of the autograd graph that keeps a segment's inputs and runs the segment again in backward.
//
// The first run is made by the caller, without gradients; attaching the node afterwards is all that happens here. The
// node is attached whether or not an input requires a gradient, so a segment that starts from token ids trains its
// parameters too: the second run builds a graph of its own down to the parameters, and a nested backward fills in their
// gradients. (torch::autograd::Function was the alternative; it drops the node when no input requires a gradient and
// runs the first pass inside C++, where a Rust panic could not unwind.)

#include "lowtide.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <ATen/ATen.h>

#include <mutex>
#include <optional>

namespace {

using torch::autograd::variable_list;

// What a run of the segment gives back across the border.
struct SegmentRun {
  std::vector<at::Tensor> outputs;
  int32_t kind = kOk;
  std::string message;
};

at::Tensor state_of(at::Generator& source) {
  std::lock_guard<std::mutex> lock(source.mutex());
  return source.get_state();
}

void set_state(at::Generator& source, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(source.mutex());
  source.set_state(state);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// One generator as it was before the first run. Forgotten again if the segment drew nothing from it.
struct GeneratorMark {
  at::Generator source;
  at::Tensor before;
};

struct AutocastMark {
  at::DeviceType type;
  bool enabled;
  at::ScalarType dtype;

  static AutocastMark of(at::DeviceType type) {
    return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
  }

  void set() const {
    at::autocast::set_autocast_enabled(type, enabled);
    at::autocast::set_autocast_dtype(type, dtype);
  }
};

// The surroundings of the first run, to be laid around the second.
struct Surroundings {
  std::vector<GeneratorMark> generators;
  std::vector<AutocastMark> autocast;

  explicit Surroundings(int32_t cuda_device) {
    auto cpu = at::detail::getDefaultCPUGenerator();
    generators.push_back({cpu, state_of(cpu)});
    autocast.push_back(AutocastMark::of(at::kCPU));
    if (cuda_device >= 0) {
      autocast.push_back(AutocastMark::of(at::kCUDA));
    }
    // A graph has random numbers of its own; whoever records one sees to it that a recomputed segment draws none.
    if (cuda_device >= 0 && !lowtide::capturing) {
      auto cuda = at::globalContext().defaultGenerator(
          at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(cuda_device)));
      generators.push_back({cuda, state_of(cuda)});
    }
  }

  bool narrows() const {
    for (const auto& mark : autocast) {
      if (mark.enabled) return true;
    }
    return false;
  }

  void forget_unused_generators() {
    std::vector<GeneratorMark> used;
    for (auto& mark : generators) {
      if (!same_bytes(mark.before, state_of(mark.source))) used.push_back(std::move(mark));
    }
    generators = std::move(used);
  }
};

// Lays the surroundings of the first run around the second, and takes them away again.
class Reenter {
 public:
  explicit Reenter(const Surroundings& first) : first_(first) {
    for (const auto& mark : first.generators) {
      auto source = mark.source;
      now_.push_back({source, state_of(source)});
    }
    for (const auto& mark : first.autocast) autocast_now_.push_back(AutocastMark::of(mark.type));
    for (const auto& mark : first.generators) {
      auto source = mark.source;
      set_state(source, mark.before);
    }
    for (const auto& mark : first.autocast) mark.set();
  }

  // Nothing here allocates, so only a device that is already lost can make one throw, and the next call on it says so.
  ~Reenter() {
    if (first_.narrows()) lowtide::quietly(&at::autocast::clear_cache);
    for (const auto& mark : autocast_now_) lowtide::quietly([&] { mark.set(); });
    for (auto& mark : now_) lowtide::quietly([&] { set_state(mark.source, mark.before); });
  }

 private:
  const Surroundings& first_;
  std::vector<GeneratorMark> now_;
  std::vector<AutocastMark> autocast_now_;
};

// Buffers (running statistics) go back to what they were before the second run. The copy goes around the version
// counter: the second run's own graph has saved these tensors and would take the copy for a modification.
class KeepBuffers {
 public:
  explicit KeepBuffers(const std::vector<at::Tensor>& buffers) : buffers_(buffers) {
    for (const auto& buffer : buffers) copies_.push_back(buffer.detach().clone());
  }

  ~KeepBuffers() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); i++) lowtide::quietly([&] { buffers_[i].variable_data().copy_(copies_[i]); });
  }

 private:
  const std::vector<at::Tensor>& buffers_;
  std::vector<at::Tensor> copies_;
};

// An input as it waits for backward: on its device, or as a copy on the host.
struct WaitingInput {
  torch::autograd::SavedVariable here;
  at::Tensor on_host;
  at::Device device;
  bool requires_grad;

  WaitingInput(const at::Tensor& input, bool to_host) : device(input.device()), requires_grad(input.requires_grad()) {
    if (!to_host || !input.is_cuda()) {
      here = torch::autograd::SavedVariable(input, /*is_output=*/false);
      return;
    }
    // Copied on the current stream into pinned memory without waiting: the copy back in backward goes through the same
    // stream, so it is ordered behind this one.
    on_host = at::empty(input.sizes(), input.options().device(at::kCPU).pinned_memory(true));
    on_host.copy_(input.detach(), /*non_blocking=*/true);
  }

  at::Tensor bring() const {
    auto value = on_host.defined() ? on_host.to(device, /*non_blocking=*/true) : here.unpack();
    return value.detach().set_requires_grad(requires_grad);
  }
};

}  // namespace

extern "C" {
using RunSegment = void (*)(const void* closure, at::Tensor* const* inputs, size_t count, void* run);
using DropSegment = void (*)(void* closure);
}

namespace {

// The closure as Rust handed it over, dropped once.
struct Closure {
  void* data;
  RunSegment run;
  DropSegment drop;

  Closure(void* data, RunSegment run, DropSegment drop) : data(data), run(run), drop(drop) {}
  Closure(const Closure&) = delete;
  Closure& operator=(const Closure&) = delete;
  ~Closure() { release(); }

  void release() {
    if (data != nullptr) drop(data);
    data = nullptr;
  }

  variable_list operator()(const variable_list& inputs) const {
    TORCH_CHECK(data != nullptr, "a recomputed segment was asked to run backward a second time after its graph was freed");
    std::vector<at::Tensor*> pointers;
    for (const auto& input : inputs) pointers.push_back(const_cast<at::Tensor*>(&input));
    SegmentRun result;
    run(data, pointers.data(), pointers.size(), &result);
    lowtide::rethrow(result.kind, result.message);
    return std::move(result.outputs);
  }
};

struct RecomputeNode final : torch::autograd::Node {
  Surroundings first;
  Closure closure;
  std::vector<WaitingInput> inputs;
  std::vector<at::Tensor> buffers;
  std::vector<int64_t> gradient_of_output;  // index into the incoming gradients, or -1

  RecomputeNode(Surroundings first, void* data, RunSegment run, DropSegment drop)
      : first(std::move(first)), closure(data, run, drop) {}

  std::string name() const override { return "LowtideRecompute"; }

  void release_variables() override {
    inputs.clear();
    buffers.clear();
    closure.release();
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(!at::GradMode::is_enabled(), "a recomputed segment has no second derivative");
    variable_list fresh;
    for (const auto& input : inputs) fresh.push_back(input.bring());
    {
      variable_list roots, root_gradients;
      run_again(fresh, gradients, roots, root_gradients);
      if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    }
    variable_list out;
    for (const auto& input : fresh) out.push_back(input.grad());
    return out;
  }

 private:
  void run_again(const variable_list& fresh, const variable_list& gradients, variable_list& roots,
                 variable_list& root_gradients) {
    variable_list outputs;
    {
      at::AutoGradMode with_gradients(true);
      Reenter surroundings(first);
      KeepBuffers keep(buffers);
      outputs = closure(fresh);
    }
    TORCH_CHECK(outputs.size() == gradient_of_output.size(), "a recomputed segment gave ", outputs.size(),
                " outputs in its second run and ", gradient_of_output.size(), " in its first");
    for (size_t i = 0; i < outputs.size(); i++) {
      const auto slot = gradient_of_output[i];
      if (slot < 0 || !gradients[slot].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[slot]);
    }
  }
};

// A node that the engine runs after everything else that waits in this thread's queue.
struct LastInLine final : torch::autograd::Node {
  LastInLine() : Node(/*sequence_nr=*/0) {}
  variable_list apply(variable_list&&) override { return {}; }
};

bool shares_storage(const at::Tensor& output, const std::vector<at::Tensor>& inputs) {
  for (const auto& input : inputs) {
    if (output.is_alias_of(input)) return true;
  }
  return false;
}

}  // namespace

extern "C" {

// Lets go of what a failed backward left in this thread's queue.
//
// When a node throws, the engine leaves the tasks that were ready in the queue until the next backward, with the
// gradients and saved tensors they hold. A backward of nothing, behind all of them, makes it drop them now. Its tensors
// have no elements, so that it needs no memory itself.
void lt_drain_backward() noexcept {
  const auto status = lowtide::guarded([] {
    auto root = at::empty({0});
    torch::autograd::create_gradient_edge(root, std::make_shared<LastInLine>());
    torch::autograd::backward({root}, {at::empty({0})});
  });
  free(status.message);
}

int32_t lt_grad_enabled() noexcept { return at::GradMode::is_enabled(); }

// Notes the surroundings before the first run. `cuda_device` is -1 where the segment works on the CPU.
Status lt_recompute_begin(int32_t cuda_device, void** out) noexcept {
  return lowtide::guarded([&] { *out = new Surroundings(cuda_device); });
}

// Ends a first run that failed. The error of the run is what its caller hears.
void lt_recompute_abandon(void* mark) noexcept {
  std::unique_ptr<Surroundings> first(static_cast<Surroundings*>(mark));
  if (first->narrows()) lowtide::quietly(&at::autocast::clear_cache);
}

// Ends a first run that went well: replaces `outputs` by tensors that lead back to the segment. Takes over `mark` and the
// closure in every case.
Status lt_recompute_attach(void* mark, at::Tensor* const* input_list, size_t input_count, at::Tensor** outputs,
                           size_t output_count, at::Tensor* const* buffer_list, size_t buffer_count, int32_t to_host,
                           void* data, RunSegment run, DropSegment drop) noexcept {
  std::unique_ptr<Surroundings> first(static_cast<Surroundings*>(mark));
  std::shared_ptr<RecomputeNode> node;
  auto status = lowtide::guarded([&] {
    // Weights narrowed in the first run were cached without their gradient edge: nobody may meet them again.
    if (first->narrows()) at::autocast::clear_cache();
    node = std::make_shared<RecomputeNode>(std::move(*first), data, run, drop);
  });
  if (node == nullptr) {
    drop(data);
    return status;
  }
  return lowtide::guarded([&] {
    node->first.forget_unused_generators();
    const auto inputs = lowtide::list(input_list, input_count);
    for (const auto& input : inputs) node->inputs.emplace_back(input, to_host != 0);
    node->buffers = lowtide::list(buffer_list, buffer_count);
    node->set_next_edges(torch::autograd::collect_next_edges(inputs));
    std::vector<at::Tensor> fresh;
    for (size_t i = 0; i < output_count; i++) {
      const auto& output = *outputs[i];
      fresh.push_back(shares_storage(output, inputs) ? output.detach().clone() : output.variable_data());
    }
    for (size_t i = 0; i < output_count; i++) {
      const bool smooth = torch::autograd::isDifferentiableType(fresh[i].scalar_type());
      node->gradient_of_output.push_back(smooth ? static_cast<int64_t>(node->num_inputs()) : -1);
      if (smooth) torch::autograd::set_history(fresh[i], node);
    }
    for (size_t i = 0; i < output_count; i++) *outputs[i] = fresh[i];
  });
}

Status lt_run_output(void* run, at::Tensor* output) noexcept {
  return lowtide::guarded([&] { static_cast<SegmentRun*>(run)->outputs.push_back(*output); });
}

// Where there is no memory for the words, that it failed is still known.
void lt_run_failed(void* run, int32_t kind, const char* message, size_t length) noexcept {
  auto* result = static_cast<SegmentRun*>(run);
  result->kind = kind;
  lowtide::quietly([&] { result->message.assign(message, length); });
}
}
