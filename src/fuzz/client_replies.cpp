// The client's decoders of what a worker answers.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

#include "client/memory/device_memory.h"
#include "client/process/interrupt_words.h"
#include "generated/wire/control_decoders.h"
#include "profile/device_profile.h"
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

/// What a client does with the addresses that a worker offers: memory that it gives to its program must lie
/// in them.
void allocate(const wire::ArenaDescription& range) {
  client::ArenaAllocator allocator(range.base, range.size, range.granularity, range.limit);
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, range.granularity, range.size,
                                   range.limit, range.limit - 1, ~std::uint64_t{0}}) {
    const auto plan = allocator.allocate(size, 1);
    if (!plan || plan->address == 0) continue;
    if (plan->address < range.base || plan->address - range.base > range.size - size || size > range.size)
      std::abort();
    if (allocator.inconsistency() != nullptr) std::abort();
  }
}

void greet(wire::Reader in) {
  wire::HelloReply answer;
  if (!wire::HelloReply::decode(in, answer)) return;
  try {
    static_cast<void>(parse_profile(answer.profile));
  } catch (const std::exception&) {  // a refusal
  }
  client::DeviceMemory memory;
  std::string error;
  if (!memory.open(answer.devices, error)) return;
  for (const auto& range : answer.devices) {
    munmap(reinterpret_cast<void*>(range.base), range.size);
    allocate(range);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::vector<std::uint8_t> exact(data + 2, data + size);
  const wire::Reader in(std::as_bytes(std::span(exact)));
  const auto which = static_cast<unsigned>((data[0] + 256u * data[1]) %
                                           (message_count + 5u + std::size(wire::control_decoders)));
  if (which < message_count) {
    wire::Reader body = in;
    static_cast<void>(reply_decoders[which](body));
  } else if (which == message_count) {
    greet(in);
  } else if (which == message_count + 1) {
    static_cast<void>(decodes<wire::ShareLimit>(in));
  } else if (which == message_count + 2) {
    static_cast<void>(decodes<wire::StatsReply>(in));
  } else if (which == message_count + 3) {
    static_cast<void>(decodes<KernelInfo>(in));
  } else if (which > message_count + 4) {
    wire::Reader body = in;
    static_cast<void>(wire::control_decoders[which - message_count - 5](body));
  } else {
    wire::Inquiry answer;
    wire::Reader body = in;
    if (wire::Inquiry::decode(body, answer)) {
      static_cast<void>(client::as_json({answer}));
      static_cast<void>(client::what_runs({answer}, std::chrono::milliseconds(answer.milliseconds)));
    }
  }
  return 0;
}
