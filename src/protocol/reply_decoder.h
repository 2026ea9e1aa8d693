// For tests that feed damaged bytes: the client's decoder of every reply.
#pragma once

#include "generated/message_ids.h"
#include "wire/bytes.h"

namespace gpupool {

/// False when the body does not decode. One per message number, in order.
using ReplyDecoder = bool (*)(wire::Reader&);
extern const ReplyDecoder reply_decoders[message_count];

}  // namespace gpupool
