// Who hears what a worker tells unasked.
#include "client/link/connection.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/device_memory.h"
#include "client/news/share_news.h"
#include "client/progress/completion.h"
#include "client/progress/host_functions.h"
#include "client/session/session_hooks.h"
#include "client/session/worker_link.h"

namespace gpupool::client {

void listen_to_worker(Connection& connection, WorkerLink& worker) {
  listen_for_completions(connection, worker);
  arriving_copies().listen(connection, worker);
  listen_for_share_news(connection, device_memory(), worker);
  connection.on_told<wire::HostFunction>(
      wire::Control::host_function,
      [&worker](const wire::HostFunction& called) { return host_function_called(called, worker); });
}

}  // namespace gpupool::client
