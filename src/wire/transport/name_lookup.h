// From `host:port` to addresses of the network, within a time.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

namespace gpupool::wire {

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// The addresses of `host:port`, `[v6]:port` or `:port`; null and `error` where there are none. `passive`: to
/// listen on. Without a `timeout_ms` it takes as long as the system's resolver takes. With one, the resolver
/// goes on in a thread of its own after that, and what it finds is dropped: it knows no way to be stopped.
Addresses look_up(const std::string& address, bool passive, std::optional<int> timeout_ms,
                  std::string& error);

}  // namespace gpupool::wire
