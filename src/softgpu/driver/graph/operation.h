// One unit of stream work, before it is known whether it will be executed or captured.
#pragma once

#include <functional>
#include <memory>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/graph.h"

namespace softgpu::driver {

class Context;

class Stream;

struct Operation {
  CUgraphNodeType type;
  NodeParameters parameters;
  std::function<void()> run;
};

// Puts the operation into the stream, or into the graph that the stream captures.
// Throws Error(STREAM_CAPTURE_IMPLICIT) when work for the legacy stream would synchronise with a capturing
// stream.
void issue(const std::shared_ptr<Stream>& stream, Operation operation);

// For calls that return when the work is done: executes it in stream order in the calling thread.
// Throws Error(STREAM_CAPTURE_UNSUPPORTED) in a capturing stream.
void issue_and_wait(const std::shared_ptr<Stream>& stream, const Operation& operation);

bool is_capturing(const Stream& stream);

// For calls that no graph can hold: throws Error(STREAM_CAPTURE_UNSUPPORTED) if the stream captures, or any
// of the context. What is captured is spoiled then, as with CUDA, so that the end of the capture says so too.
void refuse_in_capture(const Stream& stream);
void refuse_in_capture(Context& context);

}  // namespace softgpu::driver
