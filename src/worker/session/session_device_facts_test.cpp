// What the driver says of a device beyond its attributes reaches the client as it is.
#include <cstring>
#include <string>

#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

TEST_CASE("cliques and identifiers of a device are the driver's") {
  SessionTestClient client;
  messages::CliqueInfo cliques;
  cliques.count = 3;
  const auto answer = client.ask(cliques);
  wire::Reader in(answer.fields);
  replies::CliqueInfo reply;
  REQUIRE(replies::CliqueInfo::decode(in, reply));
  REQUIRE(reply.cliques.size() == sizeof(CUcliqueInfo));
  CUcliqueInfo one{};
  std::memcpy(&one, reply.cliques.data(), sizeof(one));
  CHECK(one.id == 77);
  cliques.count = std::uint64_t{1} << 40;
  CHECK(client.ask(cliques).header.result == CUDA_ERROR_INVALID_VALUE);

  const auto luid = client.ask(messages::cuDeviceGetLuid{});
  wire::Reader luid_in(luid.fields);
  replies::cuDeviceGetLuid identifier;
  REQUIRE(replies::cuDeviceGetLuid::decode(luid_in, identifier));
  CHECK(std::string(reinterpret_cast<const char*>(identifier.luid.data()), identifier.luid.size()) ==
        "abcdefgh");
  CHECK(identifier.deviceNodeMask == 5);
}
