// Batches of memory operations in streams, and attributes of streams.
#include <cuda.h>

#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "generated/client_api.h"
#include "shared_api/node_codec.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuStreamBatchMemOp

namespace gpupool::client::api {

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  if (!known(wire::Kind::stream, stream)) return bad_handle(wire::Kind::stream);
  if (paramArray == nullptr || count == 0 || count > graphs::max_batch) return CUDA_ERROR_INVALID_VALUE;
  messages::BatchMemoryOperation m;
  m.stream = raw(stream);
  m.entries = std::as_bytes(std::span(paramArray, count));
  m.flags = flags;
  return post(m);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::SetStreamAttribute m;
  m.stream = raw(hStream);
  m.attribute = attr;
  m.value = std::as_bytes(std::span(value, 1));
  return post(m);
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (value_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  messages::StreamAttribute m;
  m.stream = raw(hStream);
  m.attribute = attr;
  replies::StreamAttribute reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, context, bytes);
  if (result != CUDA_SUCCESS) return result;
  if (reply.value.size() != sizeof(*value_out)) return CUDA_ERROR_UNKNOWN;
  std::memcpy(value_out, reply.value.data(), sizeof(*value_out));
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
