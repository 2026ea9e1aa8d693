// Which stream a call means: the handle 0 is the legacy default stream, or the thread's own in the
// _ptds/_ptsz variants.
#pragma once

#include <memory>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Stream;

// While one of these lives, the default stream of this thread's calls is the per-thread one.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream();
  ~PerThreadDefaultStream();
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
};

// Whether a call with this handle is for the stream that waits for all others.
bool is_legacy_stream(CUstream handle);

// Throws Error: INVALID_CONTEXT without a current context, INVALID_HANDLE for a dead handle, the context's
// sticky error.
std::shared_ptr<Stream> resolve_stream(CUstream handle);

}  // namespace softgpu::driver
