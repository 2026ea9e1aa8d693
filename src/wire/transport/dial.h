// Opens a stream to a worker, in the best way that there is.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/transport/stream.h"
#include "wire/transport/worker_address.h"

namespace gpupool::wire {

enum class Transport { shared_memory, tcp };
[[nodiscard]] std::string_view name(Transport transport);

/// The ways to try, best first. GPUPOOL_TRANSPORT in the environment (auto, tcp, shm) narrows them. False and
/// `error` when none is left.
[[nodiscard]] bool ways_to(const WorkerAddress& worker, std::vector<Transport>& ways, std::string& error);

/// Null and `error` on failure. GPUPOOL_EMULATE in the environment (delay_us=250,mbit=1000: one way) puts a
/// slower network between.
std::unique_ptr<Stream> dial(const WorkerAddress& worker, Transport way, int timeout_ms, std::string& error);

/// The same for one question that the worker's door answers itself: on its own machine over the socket,
/// without shared memory.
std::unique_ptr<Stream> dial_for_an_answer(const WorkerAddress& worker, Transport way, int timeout_ms,
                                           std::string& error);

}  // namespace gpupool::wire
