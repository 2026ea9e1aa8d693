// The process-wide driver object: the one piece of global state that the C interface of CUDA forces.
//
// It is made by the first call and never destroyed, so that calls and threads during process exit find it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/driver/allocation_table.h"
#include "softgpu/driver/api_gate.h"
#include "softgpu/driver/checkpoint.h"
#include "softgpu/driver/cuda_api.h"
#include "softgpu/driver/device.h"
#include "softgpu/driver/registry.h"
#include "softgpu/driver/settings.h"
#include "softgpu/driver/virtual_memory.h"

namespace softgpu::driver {

class Array;
class Context;
class Event;
class Function;
class Graph;
class GraphExec;
class MipmappedArray;
class Kernel;
class Library;
class Linker;
class MemoryPool;
class Module;
class Stream;
class UserObject;
struct GreenContext;
struct ResourceDescriptor;
struct SurfaceObject;
struct TextureObject;
struct TextureReference;

class Driver {
 public:
  static Driver& get();

  const Settings settings;

  // cuInit. Throws Error(NO_DEVICE).
  void initialise();
  bool usable() const { return initialised_ && !forked_; }
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  // Throws Error(INVALID_DEVICE).
  Device& device(int ordinal) const;
  // The device that is on the card now. Throws Error(INVALID_DEVICE).
  Device& device_on_card(int card) const;
  void forget_context(const Context& context);

  ApiGate gate;
  Checkpoint checkpoint;
  // Serialises changes of graphs, which CUDA leaves to the program; cheap, and no crash if the program
  // forgets.
  std::mutex graph_mutex;

  AllocationTable allocations;
  VirtualMemory virtual_memory;
  Registry<Context> contexts;
  Registry<Stream> streams;
  Registry<Event> events;
  Registry<Module> modules;
  Registry<Function> functions;
  Registry<Library> libraries;
  Registry<Kernel> kernels;
  Registry<Linker> linkers;
  Registry<MemoryPool> pools;
  Registry<Graph> graphs;
  Registry<GraphExec> graph_execs;
  Registry<UserObject> user_objects;
  Registry<Array> arrays;
  Registry<MipmappedArray> mipmapped_arrays;
  Registry<TextureObject> textures;
  Registry<SurfaceObject> surfaces;
  Registry<TextureReference> texture_references;
  Registry<ResourceDescriptor> resource_descriptors;
  Registry<GreenContext> green_contexts;

 private:
  Driver();

  std::vector<std::unique_ptr<Device>> devices_;
  std::mutex setup_mutex_;
  std::atomic<bool> initialised_{false};
  std::atomic<bool> forked_{false};
};

}  // namespace softgpu::driver
