// What the door says to authenticated visitors itself, without the session, which may be stuck in the
// driver.
#pragma once

#include <cstdint>

#include "wire/frame.h"
#include "wire/transport/stream.h"
#include "worker/lease/work_under_way.h"

namespace gpupool::worker {

/// A client is told that another process has the seat, so that it can say so instead of "broken".
void refuse_seat(wire::Stream& stream, std::uint64_t sequence);

/// To Control::inquire.
void answer_inquiry(wire::Stream& stream, std::uint64_t sequence, const WorkUnderWay& work,
                    std::int64_t now_ns);

/// To Control::end_session: the last that the session says.
void confirm_end(wire::Stream& stream, std::uint64_t sequence);

}  // namespace gpupool::worker
