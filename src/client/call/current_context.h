// The stack of current contexts of each thread.
#pragma once

#include <cstdint>
#include <vector>

namespace gpupool::client {

/// Handles; the last one is current. Empty: none.
std::vector<std::uint64_t>& context_stack();

inline std::uint64_t current_context() {
  const auto& stack = context_stack();
  return stack.empty() ? 0 : stack.back();
}

}  // namespace gpupool::client
