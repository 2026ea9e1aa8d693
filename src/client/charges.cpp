#include "client/charges.h"

#include "client/connection.h"
#include "client/device_memory.h"
#include "client/worker_link.h"

namespace gpupool::client {

void listen_for_charges(Connection& connection, DeviceMemory& memory, const WorkerLink& worker) {
  connection.on_push(wire::Control::charged,
                     [&](std::span<const std::byte> body, wire::Receiver&, std::uint64_t payload) {
                       wire::Reader in(body);
                       const auto device = in.get<std::uint32_t>();
                       const auto bytes = in.get<std::uint64_t>();
                       return payload == 0 && in.finished() && memory.set_beside(worker, device, bytes);
                     });
}

}  // namespace gpupool::client
