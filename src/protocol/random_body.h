// For mutation tests: a plausible body for every message.
#pragma once

#include "generated/message_ids.h"
#include "wire/bytes.h"

namespace gpupool {

namespace random_fill {
class Source;
}

/// Writes a body without the payload's size. One per message number, in order.
using RandomBody = void (*)(random_fill::Source&, wire::Writer&);
extern const RandomBody random_bodies[message_count];

}  // namespace gpupool
