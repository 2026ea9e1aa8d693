#include "softgpu/driver/graph/operation.h"

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

// Needs the submit mutex. Implicit synchronisation with a capturing stream cannot be recorded; it spoils the
// capture.
void refuse_implicit_synchronisation(const Stream& stream) {
  if (stream.role() != Stream::Role::legacy) return;
  bool refused = false;
  for (const auto& other : stream.context().streams()) {
    if (other->capture && other->blocking()) {
      other->capture->invalidated = true;
      refused = true;
    }
  }
  require(!refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

// Needs the submit mutex. True if the operation became a node.
bool capture_operation(Stream& stream, Operation& operation) {
  if (!stream.capture) {
    refuse_implicit_synchronisation(stream);
    return false;
  }
  Capture& capture = *stream.capture;
  require(!capture.invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  GraphNode* node = capture.graph->add(operation.type, std::move(operation.parameters),
                                       std::move(operation.run), stream.capture_tail);
  node->context = reinterpret_cast<CUcontext>(&stream.context());
  stream.capture_tail = {node};
  return true;
}

Stream::By who_may_do(CUgraphNodeType type) {
  const bool works = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                     type == CU_GRAPH_NODE_TYPE_MEMSET;
  return works ? Stream::By::anyone : Stream::By::own_thread;
}

}  // namespace

bool is_capturing(const Stream& stream) {
  const gpupool::MutexLock order(stream.context().submit_mutex);
  return stream.capture != nullptr;
}

void refuse_in_capture(const Stream& stream) {
  const gpupool::MutexLock order(stream.context().submit_mutex);
  if (!stream.capture) return;
  stream.capture->invalidated = true;
  fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void refuse_in_capture(Context& context) {
  const gpupool::MutexLock order(context.submit_mutex);
  bool refused = false;
  for (const auto& stream : context.streams()) {
    if (!stream->capture) continue;
    stream->capture->invalidated = true;
    refused = true;
  }
  require(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void issue(const std::shared_ptr<Stream>& stream, Operation operation) {
  {
    const gpupool::MutexLock order(stream->context().submit_mutex);
    if (capture_operation(*stream, operation)) return;
  }
  stream->submit(std::move(operation.run), {}, who_may_do(operation.type));
}

void issue_and_wait(const std::shared_ptr<Stream>& stream, const Operation& operation) {
  refuse_in_capture(*stream);
  {
    const gpupool::MutexLock order(stream->context().submit_mutex);
    refuse_implicit_synchronisation(*stream);
  }
  stream->run_here(operation.run);
  stream->context().flush_printf();
  stream->context().check_usable();
}

}  // namespace softgpu::driver
