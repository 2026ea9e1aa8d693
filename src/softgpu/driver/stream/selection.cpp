#include "softgpu/driver/stream/selection.h"

#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

namespace softgpu::driver {
namespace {

thread_local int per_thread_scopes = 0;

}  // namespace

PerThreadDefaultStream::PerThreadDefaultStream() {
  ++per_thread_scopes;
}
PerThreadDefaultStream::~PerThreadDefaultStream() {
  --per_thread_scopes;
}

bool is_legacy_stream(CUstream handle) {
  return handle == CU_STREAM_LEGACY || (handle == nullptr && per_thread_scopes == 0);
}

std::shared_ptr<Stream> resolve_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    const auto context = current_context();
    const bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_scopes > 0);
    return per_thread ? context->per_thread_stream() : context->legacy_stream();
  }
  auto stream = registry<Stream>().get(handle);
  stream->context().check_usable();
  return stream;
}

}  // namespace softgpu::driver
