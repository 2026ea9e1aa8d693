#include "softgpu/driver/api/end_context.h"

#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/program/library.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/event.h"

namespace softgpu::driver {

void end_context(Context& context) {
  if (!context.destroy()) return;
  registry<Context>().take_if([&](const Context& other) { return &other == &context; });
  registry<Stream>().take_if([&](const Stream& stream) { return &stream.context() == &context; });
  registry<Event>().take_if([&](const Event& event) { return &event.context() == &context; });
  registry<Function>().take_if(
      [&](const Function& function) { return &function.module().context() == &context; });
  registry<Module>().take_if([&](const Module& module) { return &module.context() == &context; });
  registry<Array>().take_if([&](const Array& array) { return &array.context() == &context; });
  registry<MipmappedArray>().take_if(
      [&](const MipmappedArray& array) { return &array.context() == &context; });
  registry<Library>().for_each([&](Library& library) { library.forget(context); });
  free_memory_of(context);
}

}  // namespace softgpu::driver
