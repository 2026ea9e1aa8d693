// The client's decoders of what a worker answers.
#include <cstdint>
#include <memory>
#include <vector>

#include "protocol/kernel_info.h"
#include "protocol/reply_decoder.h"
#include "wire/hello.h"

using namespace gpupool;

namespace {

template <class T>
bool decodes(wire::Reader in) {
  T value;
  return T::decode(in, value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::vector<std::uint8_t> exact(data + 2, data + size);
  const wire::Reader in(std::as_bytes(std::span(exact)));
  const unsigned which = (data[0] + 256u * data[1]) % (message_count + 4u);
  if (which < message_count) {
    wire::Reader body = in;
    static_cast<void>(reply_decoders[which](body));
  } else if (which == message_count) {
    static_cast<void>(decodes<wire::HelloReply>(in));
  } else if (which == message_count + 1) {
    static_cast<void>(decodes<wire::LeaseReply>(in));
  } else if (which == message_count + 2) {
    static_cast<void>(decodes<wire::StatsReply>(in));
  } else {
    static_cast<void>(decodes<KernelInfo>(in));
  }
  return 0;
}
