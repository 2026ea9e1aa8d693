// Who hears what a worker tells unasked.
#include "client/arriving_copies.h"
#include "client/completion.h"
#include "client/connection.h"
#include "client/device_memory.h"
#include "client/host_functions.h"
#include "client/session_hooks.h"
#include "client/share_news.h"
#include "client/worker_link.h"

namespace gpupool::client {

void listen_to_worker(Connection& connection, WorkerLink& worker) {
  listen_for_completions(connection, worker);
  arriving_copies().listen(connection, worker);
  listen_for_share_news(connection, device_memory(), worker);
  connection.on_push(wire::Control::host_function,
                     [&worker](auto body, wire::Receiver&, std::uint64_t payload) {
                       return payload == 0 && host_function_called(body, worker);
                     });
}

}  // namespace gpupool::client
