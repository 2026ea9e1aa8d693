#include "client/call/current_context.h"

#include "client/call/objects.h"
#include "client/session/runtime.h"

namespace gpupool::client {

std::vector<std::uint64_t>& context_stack() {
  static thread_local std::vector<std::uint64_t> stack;
  static thread_local std::uint32_t session = 0;
  if (const std::uint32_t now = runtime().session_generation(); session != now) {
    session = now;  // contexts of an earlier session are nobody's current ones
    std::erase_if(stack, [](std::uint64_t context) { return tables().contexts.find(context) == nullptr; });
  }
  return stack;
}

}  // namespace gpupool::client
