// The worker's door for clients of its own machine: a Unix socket over which they get shared memory.
#pragma once

#include <memory>
#include <string>

#include "wire/socket.h"
#include "wire/stream.h"

namespace gpupool::wire {

/// Listens at `path` with mode 0600. A file that a killed worker left is replaced. Empty and `error` on
/// failure.
Socket listen_local(const std::string& path, std::string& error);

/// Connects to a worker on this machine. Only to one that runs as the same user or as root: whoever else can
/// put a socket at that path must not be told the token.
Socket connect_local(const std::string& path, std::string& error);

/// The client's end of a stream over shared memory. What is sent before the worker's first answer (HELLO)
/// goes over the socket, so that strangers get no memory; the answer brings the memory.
std::unique_ptr<Stream> expect_shared_memory(Socket socket);

}  // namespace gpupool::wire
