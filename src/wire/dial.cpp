#include "wire/dial.h"

#include <cstdlib>

#include "wire/local_socket.h"
#include "wire/socket_stream.h"

namespace gpupool::wire {

std::string_view name(Transport transport) {
  return transport == Transport::shared_memory ? "shared memory" : "TCP";
}

bool ways_to(const WorkerAddress& worker, std::vector<Transport>& ways, std::string& error) {
  const char* const variable = std::getenv("GPUPOOL_TRANSPORT");
  const std::string_view wish = variable == nullptr ? "" : variable;
  const bool any = wish.empty() || wish == "auto";
  if (!any && wish != "tcp" && wish != "shm") {
    error = "GPUPOOL_TRANSPORT is not one of auto, tcp, shm";
    return false;
  }
  if ((any || wish == "shm") && !worker.local.empty()) ways.push_back(Transport::shared_memory);
  if (any || wish == "tcp") ways.push_back(Transport::tcp);
  if (ways.empty()) error = "GPUPOOL_TRANSPORT is shm, but this worker has no socket for its own machine";
  return !ways.empty();
}

std::unique_ptr<Stream> dial(const WorkerAddress& worker, Transport way, int timeout_ms, std::string& error) {
  if (way == Transport::shared_memory) {
    Socket socket = connect_local(worker.local, error);
    return socket ? expect_shared_memory(std::move(socket)) : nullptr;
  }
  Socket socket = connect_tcp(worker.tcp, timeout_ms, error);
  return socket ? std::make_unique<SocketStream>(std::move(socket), worker.tcp) : nullptr;
}

}  // namespace gpupool::wire
