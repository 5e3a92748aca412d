// Several processes that train together: LibTorch's own store and gloo group, and NCCL beside it where each has a card of its own.
//
// What is small (agreements, texts) lies in memory of the caller's and never in a tensor of the allocator's: a rank whose memory
// ran out must still be able to say so.

#include "lowtide.h"
#include "nccl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

extern "C" {

struct RanksAddress {
  const char* host;
  // Before all keys, so that a restarted group does not read what the one before wrote.
  const char* prefix;
  // The network interface of gloo; null is the one that the host's name stands for.
  const char* network_interface;
  int32_t rank;
  int32_t world;
  uint16_t port;
  // Whether this process hosts the store.
  int32_t serves;
  // Whether all ranks are on this machine.
  int32_t is_local;
  int64_t timeout_ms;
};
}

namespace {

struct Ranks {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  // For large tensors on cards; all else goes through the host.
  std::unique_ptr<lowtide::Nccl> cards;
};

std::shared_ptr<::gloo::transport::Device> device_of(const RanksAddress& address) {
  if (address.network_interface != nullptr) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(address.network_interface);
  }
  if (address.is_local) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

// Bytes of a tensor on a GPU that pass through the host at once.
constexpr int64_t PASSAGE = 32 << 20;

// Calls `pass` with a contiguous tensor on the host twice, or with parts of one elsewhere, each behind plain memory of its kind.
template <typename Pass>
void through_host(const at::Tensor& tensor, Pass pass) {
  at::NoGradGuard no_grad;
  const auto flat = tensor.detach().view({-1});
  if (flat.is_cpu()) return pass(flat, flat);
  const auto most = std::min(flat.numel(), PASSAGE / static_cast<int64_t>(flat.element_size()));
  std::vector<uint8_t> memory(static_cast<size_t>(most) * flat.element_size());
  for (int64_t start = 0; start < flat.numel(); start += most) {
    const auto count = std::min(most, flat.numel() - start);
    pass(at::from_blob(memory.data(), {count}, flat.scalar_type()), flat.narrow(0, start, count));
  }
}

std::vector<uint8_t> bytes(const char* data, size_t length) {
  return std::vector<uint8_t>(data, data + length);
}

}  // namespace

extern "C" {

// Opens the store: hosts it, or finds the one that is hosted.
Status lt_ranks_store(const RanksAddress* address, void** out) noexcept {
  return lowtide::guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = address->port;
    options.isServer = address->serves != 0;
    options.numWorkers = address->world;
    // Who did not come is found out by name, with keys.
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(address->timeout_ms);
    auto store = c10::make_intrusive<c10d::TCPStore>(std::string(address->host), options);
    auto ranks = std::make_unique<Ranks>();
    ranks->store = c10::make_intrusive<c10d::PrefixStore>(std::string(address->prefix), std::move(store));
    *out = ranks.release();
  });
}

// Connects this rank with all others.
Status lt_ranks_connect(void* handle, const RanksAddress* address) noexcept {
  return lowtide::guarded([&] {
    auto* ranks = static_cast<Ranks*>(handle);
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(address->timeout_ms));
    options->devices.push_back(device_of(*address));
    ranks->group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(ranks->store, address->rank, address->world, options);
  });
}

// Closes the connections and keeps the store: those who wait for this rank hear of it at once.
void lt_ranks_hang_up(void* handle) noexcept {
  lowtide::quietly([&] {
    auto* ranks = static_cast<Ranks*>(handle);
    ranks->cards.reset();
    ranks->group.reset();
  });
}

void lt_ranks_leave(void* handle) noexcept {
  lowtide::quietly([&] { delete static_cast<Ranks*>(handle); });
}

Status lt_ranks_set(void* handle, const char* key, const char* value, size_t length) noexcept {
  return lowtide::guarded([&] { static_cast<Ranks*>(handle)->store->set(key, bytes(value, length)); });
}

// Whether the key is there now.
Status lt_ranks_check(void* handle, const char* key, int32_t* there) noexcept {
  return lowtide::guarded([&] { *there = static_cast<Ranks*>(handle)->store->check({std::string(key)}); });
}

// What cards find each other by, made by one rank for all: 128 bytes.
Status lt_ranks_nccl_id(uint8_t* out) noexcept {
  return lowtide::guarded([&] {
    const auto id = lowtide::new_nccl_id();
    std::copy(id.begin(), id.end(), out);
  });
}

// Connects the cards of all ranks, and sends `trial` once in each way: what NCCL allocates at the first time is allocated here. A rank
// is waited for up to `trial_ms` meanwhile, and later up to `timeout_ms`.
Status lt_ranks_nccl_join(void* handle, const uint8_t* id, int32_t rank, int32_t world, at::Tensor* trial, int64_t trial_ms,
                          int64_t timeout_ms) noexcept {
  return lowtide::guarded([&] {
    lowtide::NcclId common;
    std::copy(id, id + common.size(), common.begin());
    auto cards = std::make_unique<lowtide::Nccl>(common, rank, world, trial->device(), std::chrono::milliseconds(trial_ms));
    for (const auto& part : {trial->narrow(0, 0, 1), *trial}) {
      cards->sum(part);
      cards->broadcast(part, 0);
    }
    cards->wait_up_to(std::chrono::milliseconds(timeout_ms));
    static_cast<Ranks*>(handle)->cards = std::move(cards);
  });
}

// Sends everything through the host again.
void lt_ranks_nccl_leave(void* handle) noexcept {
  lowtide::quietly([&] { static_cast<Ranks*>(handle)->cards.reset(); });
}

// Adds up a tensor over all ranks, in place on each.
Status lt_ranks_sum(void* handle, at::Tensor* tensor) noexcept {
  return lowtide::guarded([&] {
    auto* ranks = static_cast<Ranks*>(handle);
    std::vector<at::Tensor> list{tensor->detach()};
    if (ranks->cards && ranks->cards->takes(list[0])) return ranks->cards->sum(list[0]);
    ranks->group->allreduce(list)->wait();
  });
}

// Copies a tensor of rank `root` into those of all others.
Status lt_ranks_broadcast(void* handle, at::Tensor* tensor, int32_t root) noexcept {
  return lowtide::guarded([&] {
    auto* ranks = static_cast<Ranks*>(handle);
    std::vector<at::Tensor> list{tensor->detach()};
    if (ranks->cards && ranks->cards->takes(list[0])) return ranks->cards->broadcast(list[0], root);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    ranks->group->broadcast(list, options)->wait();
  });
}

// Sends a tensor to one rank, which receives it. Both go through plain memory where the tensor is on a GPU: gloo sends from the host.
Status lt_ranks_send(void* handle, at::Tensor* tensor, int32_t target) noexcept {
  return lowtide::guarded([&] {
    through_host(*tensor, [&](at::Tensor here, at::Tensor there) {
      if (!here.is_same(there)) here.copy_(there);
      std::vector<at::Tensor> list{here};
      static_cast<Ranks*>(handle)->group->send(list, target, 0)->wait();
    });
  });
}

Status lt_ranks_receive(void* handle, at::Tensor* tensor, int32_t source) noexcept {
  return lowtide::guarded([&] {
    through_host(*tensor, [&](at::Tensor here, at::Tensor there) {
      std::vector<at::Tensor> list{here};
      static_cast<Ranks*>(handle)->group->recv(list, source, 0)->wait();
      if (!here.is_same(there)) there.copy_(here);
    });
  });
}

// The same for one number.
Status lt_ranks_send_number(void* handle, int64_t number, int32_t target) noexcept {
  return lowtide::guarded([&] {
    std::vector<at::Tensor> list{at::from_blob(&number, {1}, at::kLong)};
    static_cast<Ranks*>(handle)->group->send(list, target, 0)->wait();
  });
}

Status lt_ranks_receive_number(void* handle, int64_t* number, int32_t source) noexcept {
  return lowtide::guarded([&] {
    std::vector<at::Tensor> list{at::from_blob(number, {1}, at::kLong)};
    static_cast<Ranks*>(handle)->group->recv(list, source, 0)->wait();
  });
}

// `rows` has a row for each rank, all of the same length, and is 0 except for this rank's own; afterwards every row is its rank's.
Status lt_ranks_gather(void* handle, uint8_t* rows, size_t length) noexcept {
  return lowtide::guarded([&] {
    std::vector<at::Tensor> list{at::from_blob(rows, {static_cast<int64_t>(length)}, at::kByte)};
    static_cast<Ranks*>(handle)->group->allreduce(list)->wait();
  });
}
}
