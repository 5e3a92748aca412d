// What LibTorch's header of its gloo group names of gloo's context. The code is inside LibTorch, and the wheel has no headers for it.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace transport
}  // namespace gloo
