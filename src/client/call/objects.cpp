#include "client/call/objects.h"

#include "client/process/session_belongings.h"

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

}  // namespace gpupool::client
