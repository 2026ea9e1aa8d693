// Unix sockets: the worker's door for clients of its own machine, over which they get shared memory, and what
// all doors of this kind have in common.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "wire/transport/socket.h"
#include "wire/transport/stream.h"

namespace gpupool::wire {

/// Who runs the process at the other end of a Unix socket.
[[nodiscard]] std::optional<uid_t> peer_user(int socket);

/// The process at the other end of a Unix socket, when it connected.
[[nodiscard]] std::optional<pid_t> peer_process(int socket);

/// Listens at `path` with mode 0600, without blocking in accept. A file that a killed worker left is
/// replaced. Empty and `error` on failure.
Socket listen_local(const std::string& path, std::string& error);

/// Connects to a worker on this machine. Only to one that runs as the same user or as root: whoever else can
/// put a socket at that path must not be told the token.
Socket connect_local(const std::string& path, std::string& error);

/// The client's end of a stream over shared memory. What is sent before the worker's first answer (HELLO)
/// goes over the socket, so that strangers get no memory; the answer brings the memory.
std::unique_ptr<Stream> expect_shared_memory(Socket socket);

}  // namespace gpupool::wire
