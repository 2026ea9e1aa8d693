#include "client/call/current_context.h"

#include "base/thread_object.h"
#include "client/call/objects.h"
#include "client/session/runtime.h"

namespace gpupool::client {

std::vector<std::uint64_t>& context_stack() {
  auto& stack = of_this_thread<std::vector<std::uint64_t>, struct CurrentContexts>();
  static thread_local std::uint32_t session = 0;
  if (const std::uint32_t now = runtime().session_generation(); session != now) {
    session = now;  // contexts of an earlier session are nobody's current ones
    std::erase_if(stack, [](std::uint64_t context) { return tables().contexts.find(context) == nullptr; });
  }
  return stack;
}

}  // namespace gpupool::client
