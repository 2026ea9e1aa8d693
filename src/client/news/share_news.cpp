#include "client/news/share_news.h"

#include "client/lease/refused_memory.h"
#include "client/link/connection.h"
#include "client/memory/device_memory.h"
#include "client/session/worker_link.h"

namespace gpupool::client {

void listen_for_share_news(Connection& connection, DeviceMemory& memory, const WorkerLink& worker) {
  connection.on_told<wire::DeviceBytes>(
      wire::Control::charged, [&memory, &worker](const wire::DeviceBytes& told) {
        ToldShare* const share = memory.told(worker, told.device);
        if (share == nullptr) return false;
        refused_memory().served(worker.first_device + static_cast<int>(told.device),
                                share->set_beside(told.bytes));
        return true;
      });
  connection.on_told<wire::DeviceBytes>(wire::Control::memory_refused,
                                        [&memory, &worker](const wire::DeviceBytes& told) {
                                          ToldShare* const share = memory.told(worker, told.device);
                                          if (share == nullptr) return false;
                                          share->set_refusal(told.bytes);
                                          return true;
                                        });
  connection.on_told<wire::ShareLimit>(wire::Control::share_limit,
                                       [&connection, &memory, &worker](const wire::ShareLimit& told) {
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
