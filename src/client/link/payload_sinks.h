// Where the payload of a reply goes: one stretch of memory.
#pragma once

#include <cstddef>

#include "client/link/connection.h"

namespace gpupool::client {

class IntoMemory final : public PayloadSink {
 public:
  IntoMemory(void* to, std::size_t size) : to_(to), size_(size) {}
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    return size == size_ && receiver.take(to_, size_);
  }

 private:
  void* to_;
  std::size_t size_;
};

}  // namespace gpupool::client
