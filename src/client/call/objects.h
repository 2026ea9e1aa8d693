// What the client knows about each CUDA object.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/mutex.h"
#include "client/call/handle_table.h"
#include "client/call/progress.h"
#include "protocol/kernel_info.h"

namespace gpupool::client {

struct Context {
  int device = 0;
  bool primary = false;
  bool green = false;  ///< made of a green context, with which it goes
  unsigned flags = 0;
  int attached = 1;  ///< cuCtxCreate and cuCtxAttach minus cuCtxDetach
  int retained = 0;  ///< primary: cuDevicePrimaryCtxRetain minus Release
  std::uint64_t id = 0;
  FrameMark done;   ///< the whole context has finished what came up to this frame
  Progress legacy;  ///< of its legacy stream
};

struct Stream {
  std::uint64_t context = 0;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  Progress progress;
};

struct Event {
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

  std::uint64_t context = 0;
  unsigned flags = 0;
  FrameMark stream{nowhere};  ///< handle of the stream it was last recorded in
  Progress progress;
  FrameMark elsewhere;  ///< not 0: a launch or a graph may record it: what is known here does not count
  FrameMark captured;   ///< not 0: it was last recorded while there was a capture, and may belong to it

  /// Whether what is known here of its last record is all there is.
  [[nodiscard]] bool is_known_here() const { return elsewhere.get() == 0 && captured.get() == 0; }

  /// Frame `place` recorded it in stream `in` (nowhere: it cannot be said which). Who reads the stream,
  /// progress.given and the same stream again has a pair that belongs together.
  void recorded(std::uint64_t in, std::uint64_t place) {
    stream.exchange(nowhere);
    progress.given.raise(place);
    stream.exchange(in);
  }
};

/// A global variable of a module, or a graph's memory: it lies outside the arenas.
struct Global {
  CUdeviceptr address = 0;
  std::size_t size = 0;
  int device = 0;
  auto operator<=>(const Global&) const = default;
};

/// A module or a library with its kernels.
struct Image {
  std::uint64_t handle = 0;
  std::uint64_t context = 0;
  bool is_library = false;
  /// These two do not change once the image is loaded. `ordinals`: of a library, on workers that name its
  /// kernels in another order than the first: their ordinals by that.
  std::map<std::string, std::uint32_t, std::less<>> by_name;
  std::map<unsigned, std::vector<std::uint32_t>> ordinals;
  Mutex mutex;
  std::vector<std::shared_ptr<KernelInfo>> kernels GUARDED_BY(mutex);
  /// By ordinal: the handle of the kernel or function.
  std::map<std::uint32_t, std::uint64_t> bound GUARDED_BY(mutex);
  std::vector<std::uint64_t> functions GUARDED_BY(mutex);  ///< made from kernels of this library
  /// Of a library, by context: the module that it is there.
  std::map<std::uint64_t, std::uint64_t> modules GUARDED_BY(mutex);
  /// By context, of which a module has one.
  std::map<std::pair<std::uint64_t, std::string>, Global> globals GUARDED_BY(mutex);
  std::set<Global> managed GUARDED_BY(mutex);  ///< of a library: its managed variables that were asked for

  /// The context of one of `modules`; 0 for what is none.
  [[nodiscard]] std::uint64_t context_of_module(std::uint64_t module) const REQUIRES(mutex) {
    for (const auto& [context, its] : modules) {
      if (its == module) return context;
    }
    return 0;
  }

  [[nodiscard]] unsigned kernel_count() {
    const MutexLock lock(mutex);
    return static_cast<unsigned>(kernels.size());
  }
};

/// A CUfunction or a CUkernel.
struct Function {
  std::shared_ptr<KernelInfo> info;
  std::uint32_t parameter_bytes = 0;
  std::uint64_t image = 0;
  std::uint64_t kernel = 0;                          ///< of a function made from a kernel
  std::uint64_t context = 0;                         ///< likewise: it is of no use in another
  std::map<std::uint64_t, std::uint64_t> functions;  ///< of a kernel: those made from it, by context
};

struct Link;

struct Graph {
  std::uint64_t context = 0;
};

/// An account of stream-ordered memory: the memory itself is the arena's.
struct MemoryPool {
  enum class Kind : std::uint8_t { device, managed, host };
  Kind kind = Kind::device;
  CUmemLocation location{};
  int device = 0;  ///< where its memory is on the device's side
  bool is_default = false;
  std::uint64_t max_size = 0;  ///< 0: none
  std::map<int, std::uint64_t> attributes;
  std::uint64_t used = 0, used_high = 0;
  bool shareable = false;  ///< its memory can be given to other processes
  bool imported = false;   ///< another process's: it gives no memory, only takes in what that one gives
  std::array<std::byte, 16> office{};  ///< imported: of the giver's tickets
  std::uint64_t foreign = 0;           ///< imported: the giver's handle
};

struct Tables {
  HandleTable<Context, wire::Kind::context> contexts{64};  // the first 64: primary contexts
  HandleTable<Stream, wire::Kind::stream> streams;
  HandleTable<Event, wire::Kind::event> events;
  HandleTable<std::shared_ptr<Image>, wire::Kind::module> modules;
  HandleTable<std::shared_ptr<Image>, wire::Kind::library> libraries;
  HandleTable<Function, wire::Kind::function> functions;
  HandleTable<Function, wire::Kind::kernel> kernels;
  HandleTable<std::shared_ptr<Link>, wire::Kind::link> links;
  HandleTable<Graph, wire::Kind::graph> graphs;
  HandleTable<Graph, wire::Kind::graph_exec> graph_execs;
  HandleTable<MemoryPool, wire::Kind::memory_pool> pools{192};  // the first: default pools, 64 of each kind
};

/// One per process, never destroyed.
Tables& tables();

template <class H>
  requires(std::is_pointer_v<H>)
std::uint64_t raw(H handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}
inline std::uint64_t raw(unsigned long long handle) {
  return handle;
}
template <class H>
H handle_as(std::uint64_t value) {
  if constexpr (std::is_pointer_v<H>) {
    return reinterpret_cast<H>(value);
  } else {
    return value;
  }
}

/// Whether a handle given by the program is one of ours and alive; for streams also the special values
/// (objects_of_all_kinds.cpp).
bool known(wire::Kind kind, std::uint64_t value);
template <class H>
bool known(wire::Kind kind, H handle) {
  return known(kind, raw(handle));
}

}  // namespace gpupool::client
