#include "wire/transport/dial.h"

#include <cstdlib>

#include "wire/transport/emulated_stream.h"
#include "wire/transport/local_socket.h"
#include "wire/transport/socket_stream.h"
#include "wire/transport/tls_stream.h"

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

namespace {

std::unique_ptr<Stream> dial_directly(const WorkerAddress& worker, Transport way, bool for_an_answer,
                                      int timeout_ms, std::string& error) {
  if (way == Transport::shared_memory) {
    Socket socket = connect_local(worker.local, error);
    if (socket && for_an_answer) return std::make_unique<SocketStream>(std::move(socket), worker.local);
    return socket ? expect_shared_memory(std::move(socket)) : nullptr;
  }
  Socket socket = connect_tcp(worker.tcp, timeout_ms, error);
  if (socket && worker.tls) {
    return TlsStream::connect(std::move(socket), *worker.tls, worker.tcp, timeout_ms, error);
  }
  return socket ? std::make_unique<SocketStream>(std::move(socket), worker.tcp) : nullptr;
}

std::unique_ptr<Stream> dial_as_asked(const WorkerAddress& worker, Transport way, bool for_an_answer,
                                      int timeout_ms, std::string& error) {
  const char* const variable = std::getenv("GPUPOOL_EMULATE");
  std::optional<LinkQuality> emulated;
  if (variable != nullptr && *variable != '\0') {
    emulated = LinkQuality::parse(variable, error);
    if (!emulated) return nullptr;
  }
  auto stream = dial_directly(worker, way, for_an_answer, timeout_ms, error);
  if (stream != nullptr && emulated) stream = std::make_unique<EmulatedStream>(std::move(stream), *emulated);
  return stream;
}

}  // namespace

std::unique_ptr<Stream> dial(const WorkerAddress& worker, Transport way, int timeout_ms, std::string& error) {
  return dial_as_asked(worker, way, false, timeout_ms, error);
}

std::unique_ptr<Stream> dial_for_an_answer(const WorkerAddress& worker, Transport way, int timeout_ms,
                                           std::string& error) {
  return dial_as_asked(worker, way, true, timeout_ms, error);
}

}  // namespace gpupool::wire
