// What is asked about an object of any kind, which only the room of its kind can answer.
#include "base/mutex.h"
#include "client/call/objects.h"
#include "client/call/routing.h"
#include "client/memory/virtual_memory.h"
#include "client/objects/graph_store.h"
#include "client/objects/images.h"
#include "client/objects/plain_objects.h"

namespace gpupool::client {
namespace {

using wire::Kind;

template <Kind kind>
std::uint64_t context_of_plain(std::uint64_t value) {
  const PlainObject* const found = plain_table<kind>().find(value);
  return found == nullptr ? 0 : found->context;
}

/// The graph that a node is in; 0 for an unknown one.
std::uint64_t graph_of_node(std::uint64_t node) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.nodes.find(node);
  return found == store.nodes.end() ? 0 : found->second.graph;
}

/// The context of an image; 0 for a library, which is on every node.
std::uint64_t context_of_image(std::uint64_t value) {
  const auto image = find_image(value);
  return image == nullptr || image->is_library ? 0 : image->context;
}

}  // namespace

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

int device_of_context(std::uint64_t context) {
  const auto handle = wire::Handle::from(context);
  if (handle.kind == Kind::context && handle.index < primary_contexts) return static_cast<int>(handle.index);
  const Context* const found = tables().contexts.find(context);
  return found == nullptr ? -1 : found->device;
}

std::uint64_t context_of(Kind kind, std::uint64_t value) {
  Tables& t = tables();
  const auto of = [](const auto* found) { return found == nullptr ? 0 : found->context; };
  switch (kind) {
    case Kind::context:
      return value;
    case Kind::stream:
      return of(t.streams.find(value));
    case Kind::event:
      return of(t.events.find(value));
    case Kind::module:
    case Kind::library:
      return context_of_image(value);
    case Kind::function:
    case Kind::kernel: {
      const Function* const found = find_function(value);
      if (found == nullptr) return 0;
      return found->context != 0 ? found->context : context_of_image(found->image);
    }
    case Kind::graph:
      return of(t.graphs.find(value));
    case Kind::graph_exec:
      return of(t.graph_execs.find(value));
    case Kind::graph_node:
    case Kind::found_node:
      return of(t.graphs.find(graph_of_node(value)));
    case Kind::array:
      return context_of_plain<Kind::array>(value);
    case Kind::mipmapped_array:
      return context_of_plain<Kind::mipmapped_array>(value);
    case Kind::texture_reference:
      return context_of_plain<Kind::texture_reference>(value);
    case Kind::surface_reference:
      return context_of_plain<Kind::surface_reference>(value);
    default:
      return 0;
  }
}

}  // namespace gpupool::client
