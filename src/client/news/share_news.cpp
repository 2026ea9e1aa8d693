#include "client/news/share_news.h"

#include "client/lease/refused_memory.h"
#include "client/link/connection.h"
#include "client/memory/device_memory.h"
#include "client/session/worker_link.h"

namespace gpupool::client {

void listen_for_share_news(Connection& connection, DeviceMemory& memory, const WorkerLink& worker) {
  connection.on_push(wire::Control::charged, [&memory, &worker](std::span<const std::byte> body,
                                                                wire::Receiver&, std::uint64_t payload) {
    wire::Reader in(body);
    const auto device = in.get<std::uint32_t>();
    const auto bytes = in.get<std::uint64_t>();
    ToldShare* const share = memory.told(worker, device);
    if (payload != 0 || !in.finished() || share == nullptr) return false;
    refused_memory().served(worker.first_device + static_cast<int>(device), share->set_beside(bytes));
    return true;
  });
  connection.on_push(
      wire::Control::memory_refused,
      [&memory, &worker](std::span<const std::byte> body, wire::Receiver&, std::uint64_t payload) {
        wire::Reader in(body);
        const auto device = in.get<std::uint32_t>();
        const auto bytes = in.get<std::uint64_t>();
        ToldShare* const share = memory.told(worker, device);
        if (payload != 0 || !in.finished() || share == nullptr) return false;
        share->set_refusal(bytes);
        return true;
      });
  connection.on_push(wire::Control::share_limit,
                     [&connection, &memory, &worker](std::span<const std::byte> body, wire::Receiver&,
                                                     std::uint64_t payload) {
                       wire::Reader in(body);
                       wire::ShareLimit told;
                       if (payload != 0 || !wire::ShareLimit::decode(in, told)) return false;
                       ToldShare* const share = memory.told(worker, told.device);
                       if (share == nullptr) return false;
                       if (told.number == 0) {
                         share->set_limit(told.bytes);
                       } else {
                         share->set_wish({told.bytes, told.number});
                         connection.run_errand();  // who reads must not post
                       }
                       return true;
                     });
}

}  // namespace gpupool::client
