#include "client/call.h"

#include <string>

#include "client/graph_store.h"
#include "client/log.h"
#include "client/plain_objects.h"
#include "client/session_belongings.h"
#include "client/virtual_memory.h"
#include "error_log/error_log.h"

namespace gpupool::client {

namespace {

void forget(Tables& all) {
  struct Primary {
    int device, retained;
    unsigned flags;
    std::uint64_t id;
  };
  std::vector<Primary> primaries;
  all.contexts.each([&](std::uint64_t, const Context& one) {
    if (one.primary) primaries.push_back({one.device, one.retained, one.flags, one.id});
  });
  all.contexts.forget_all();
  all.streams.forget_all();
  all.events.forget_all();
  all.modules.forget_all();
  all.libraries.forget_all();
  all.functions.forget_all();
  all.kernels.forget_all();
  all.links.forget_all();
  all.graphs.forget_all();
  all.graph_execs.forget_all();
  all.pools.forget_all();
  // Who has retained them may go on using them: they are empty.
  for (const Primary& one : primaries) {
    Context* object = nullptr;
    all.contexts.mint_at(static_cast<std::uint32_t>(one.device), object);
    object->device = one.device;
    object->primary = true;
    object->retained = one.retained;
    object->flags = one.flags;
    object->id = one.id;
  }
}

}  // namespace

Tables& tables() {
  static Tables& all = kept_for_session<Tables>([](Tables& kept) { forget(kept); });
  return all;
}

std::vector<std::uint64_t>& context_stack() {
  static thread_local std::vector<std::uint64_t> stack;
  static thread_local std::uint32_t session = 0;
  if (const std::uint32_t now = runtime().session_generation(); session != now) {
    session = now;  // contexts of an earlier session are nobody's current ones
    std::erase_if(stack, [](std::uint64_t context) { return tables().contexts.find(context) == nullptr; });
  }
  return stack;
}

bool known(wire::Kind kind, std::uint64_t value) {
  Tables& t = tables();
  switch (kind) {
    case wire::Kind::context:
      return t.contexts.find(value) != nullptr;
    case wire::Kind::stream:
      return value <= 2 || t.streams.find(value) != nullptr;
    case wire::Kind::event:
      return t.events.find(value) != nullptr;
    case wire::Kind::module:
      return t.modules.find(value) != nullptr;
    case wire::Kind::library:
      return t.libraries.find(value) != nullptr;
    case wire::Kind::function:
      return t.functions.find(value) != nullptr || t.kernels.find(value) != nullptr;
    case wire::Kind::kernel:
      return t.kernels.find(value) != nullptr;
    case wire::Kind::link:
      return t.links.find(value) != nullptr;
    case wire::Kind::graph:
      return t.graphs.find(value) != nullptr;
    case wire::Kind::graph_exec:
      return t.graph_execs.find(value) != nullptr;
    case wire::Kind::graph_node:
    case wire::Kind::found_node:
      return is_graph_node(value);
    case wire::Kind::memory_pool:
      return t.pools.find(value) != nullptr;
    case wire::Kind::allocation:
      return virtual_memory().has(value);
    default:
      return known_plain(kind, value);
  }
}

CUresult bad_handle(wire::Kind kind) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return kind == wire::Kind::context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

CUresult in_current_context(std::uint64_t& context) {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;  // its thread has no context; this says more
  context = current_context();
  if (context != 0) return CUDA_SUCCESS;
  return runtime().initialised() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult wait_for_strays(const Route& route) {
  messages::SynchronizeContext m;
  m.context = route.context;
  replies::SynchronizeContext reply;
  std::vector<std::byte> bytes;
  return ask(m, reply, route.context, bytes);
}

CUresult earlier_or(CUresult own, const WorkerLink& worker) {
  const auto failed = worker.connection.load(std::memory_order_acquire)->take_deferred();
  if (!failed) {
    if (own == CUDA_ERROR_OUT_OF_MEMORY) runtime().memory.hear_refusals();
    return own;
  }
  const auto error = worker_result(failed->error);
  const bool unattached = error == CUDA_ERROR_DEVICE_UNAVAILABLE;
  std::string text =
      std::string(public_name(failed->message)) + " failed earlier with error " + std::to_string(error);
  if (unattached) text += " (no GPU was attached when it reached the worker)";
  log_line(text);
  error_log().add(text);
  // Where this call is refused too, its own message says more: why there is no GPU.
  if (!unattached || own != CUDA_ERROR_DEVICE_UNAVAILABLE) remember(text);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) runtime().memory.hear_refusals();
  return error;
}

}  // namespace gpupool::client
