// A name server that does not answer holds up nobody for longer than was said.
#include "wire/transport/name_lookup.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <cstring>
#include <future>

using namespace gpupool::wire;

namespace {

std::promise<void> silence_ends;
std::shared_future<void> silence = silence_ends.get_future().share();

in_addr_t first_v4(const Addresses& found) {
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next)
    if (at->ai_family == AF_INET)
      return ntohl(reinterpret_cast<const sockaddr_in*>(at->ai_addr)->sin_addr.s_addr);
  return 0;
}

}  // namespace

/// In place of the system's, which it calls: for one name it is silent until the test says otherwise.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** list) {
  if (host != nullptr && std::strcmp(host, "silent.example") == 0) {
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
    silence.wait();
    return EAI_AGAIN;
  }
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(host, port, hints, list);
}

TEST_CASE("a name that nobody answers for is given up in time") {
  std::string error;
  CHECK(look_up("silent.example:80", false, 50, error) == nullptr);
  CHECK(error == "cannot resolve silent.example:80: no name server answered within 50 ms");
  silence_ends.set_value();
  error.clear();
  CHECK(look_up("silent.example:80", false, std::nullopt, error) == nullptr);
  CHECK(error.starts_with("cannot resolve silent.example:80: "));
}

TEST_CASE("numbers and names") {
  std::string error;
  CHECK(first_v4(look_up("127.0.0.1:80", false, 5000, error)) == INADDR_LOOPBACK);
  CHECK(look_up("[::1]:80", false, 5000, error) != nullptr);
  CHECK(look_up(":80", true, std::nullopt, error) != nullptr);
  CHECK(look_up("localhost:80", false, 5000, error) != nullptr);
  CHECK(error.empty());
}

TEST_CASE("an address without a port is refused") {
  std::string error;
  CHECK(look_up("localhost", false, 5000, error) == nullptr);
  CHECK(error == "address without a port: localhost");
}
