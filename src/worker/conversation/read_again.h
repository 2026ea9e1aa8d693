// Which calls are executed again when their answer was lost: reads of device memory, whose bytes are too many
// to be kept. A program that does not write there meanwhile gets the same bytes.
#pragma once

#include <cstdint>

#include "generated/message_ids.h"

namespace gpupool::worker {

constexpr bool read_again(std::uint16_t message) {
  switch (static_cast<MessageId>(message)) {
    case MessageId::CopyToHost:
    case MessageId::CopyRowsToHost:
    case MessageId::CopyArrayToHost:
    case MessageId::ReadPages:
      return true;
    default:
      return false;
  }
}

}  // namespace gpupool::worker
