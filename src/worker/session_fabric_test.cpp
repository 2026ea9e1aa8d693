// Multicast objects and logical endpoints: what the client says reaches the driver in the driver's own terms,
// and what is bound counts against the share for as long as the driver holds it.
#include "worker/session_test_client.h"

#include <string>

using namespace gpupool;
using worker::SessionTestClient;

namespace {

constexpr std::uint64_t granule = SessionTestClient::granularity;

std::string& calls() {
  return worker::of_test_driver<std::string>("test_driver_fabric_calls");
}
/// What reached the driver since the last look.
std::string told() {
  std::string all;
  std::swap(all, calls());
  return all;
}

std::uint64_t allocation(std::uint32_t index) {
  return SessionTestClient::handle(wire::Kind::allocation, index);
}

/// Physical memory under a handle, mapped into the arena at the same place.
void make_memory(SessionTestClient& client, std::uint32_t index, std::uint64_t size) {
  messages::CreatePhysical create;
  create.memory = allocation(index);
  create.size = size;
  client.post(create);
  CHECK(client.deferred() == CUDA_SUCCESS);
}
void map_memory(SessionTestClient& client, std::uint32_t index, std::uint64_t address, std::uint64_t size) {
  messages::MapPhysical map;
  map.memory = allocation(index);
  map.address = address;
  map.size = size;
  client.post(map);
  CHECK(client.deferred() == CUDA_SUCCESS);
}
void release(SessionTestClient& client, std::uint32_t index) {
  messages::ReleasePhysical m;
  m.memory = allocation(index);
  client.post(m);
  CHECK(client.deferred() == CUDA_SUCCESS);
}

int make_multicast(SessionTestClient& client, std::uint32_t index) {
  CUmulticastObjectProp prop{};
  prop.numDevices = 1;
  prop.size = 8 * granule;
  messages::cuMulticastCreate m;
  m.mcHandle = allocation(index);
  std::memcpy(m.prop.data(), &prop, sizeof(prop));
  return client.ask(m).header.result;
}

/// A number that the driver was told, as its line has it.
std::uint64_t number(const std::string& line, int which) {
  std::size_t at = line.find(' ');
  for (; which > 0; --which) at = line.find(' ', at + 1);
  return std::stoull(line.substr(at + 1));
}

}  // namespace

TEST_CASE("a multicast object is made, filled and emptied with the driver's own handles") {
  told();
  SessionTestClient client;
  CHECK(make_multicast(client, 1) == CUDA_SUCCESS);
  CHECK(told() == "create 1 " + std::to_string(8 * granule) + " 0 0\n");
  CHECK(make_multicast(client, 1) == CUDA_ERROR_INVALID_HANDLE);

  messages::cuMulticastAddDevice add;
  add.mcHandle = allocation(1);
  CHECK(client.ask(add).header.result == CUDA_SUCCESS);
  const std::string added = told();
  const std::uint64_t object = number(added, 0);
  CHECK(object >= 0x7000);
  add.dev = 1;
  CHECK(client.ask(add).header.result == CUDA_ERROR_INVALID_DEVICE);

  make_memory(client, 2, 2 * granule);
  messages::cuMulticastBindMem bind;
  bind.mcHandle = allocation(1);
  bind.mcOffset = granule;
  bind.memHandle = allocation(2);
  bind.memOffset = 512;
  bind.size = granule;
  CHECK(client.ask(bind).header.result == CUDA_SUCCESS);
  const std::string bound = told();
  const std::uint64_t memory = number(bound, 2);
  CHECK(memory < 0x7000);
  CHECK(bound == "bind " + std::to_string(object) + " " + std::to_string(granule) + " " +
                     std::to_string(memory) + " 512 " + std::to_string(granule) + " 0\n");

  messages::cuMulticastUnbind unbind;
  unbind.mcHandle = allocation(1);
  unbind.mcOffset = granule;
  unbind.size = granule;
  CHECK(client.ask(unbind).header.result == CUDA_SUCCESS);
  CHECK(told() == "unbind " + std::to_string(object) + " 0 " + std::to_string(granule) + " " +
                      std::to_string(granule) + "\n");

  messages::cuMulticastGetGranularity granularity;
  granularity.option = CU_MULTICAST_GRANULARITY_RECOMMENDED;
  const auto answer = client.ask(granularity);
  wire::Reader in(answer.fields);
  replies::cuMulticastGetGranularity reply;
  REQUIRE(replies::cuMulticastGetGranularity::decode(in, reply));
  CHECK(reply.granularity == 2u << 20);
}

TEST_CASE("what is bound to a multicast object counts against the share until it is unbound") {
  SessionTestClient client(4 * granule);
  REQUIRE(make_multicast(client, 1) == CUDA_SUCCESS);
  make_memory(client, 2, 3 * granule);
  messages::cuMulticastBindMem_v2 bind;
  bind.mcHandle = allocation(1);
  bind.memHandle = allocation(2);
  bind.size = 3 * granule;
  CHECK(client.ask(bind).header.result == CUDA_SUCCESS);
  release(client, 2);
  messages::CreatePhysical more;
  more.memory = allocation(3);
  more.size = 2 * granule;
  client.post(more);
  CHECK(client.deferred() == CUDA_ERROR_OUT_OF_MEMORY);

  messages::cuMulticastUnbind unbind;
  unbind.mcHandle = allocation(1);
  unbind.size = 3 * granule;
  CHECK(client.ask(unbind).header.result == CUDA_SUCCESS);
  client.post(more);
  CHECK(client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("only memory of the session is bound, and only to multicast objects") {
  SessionTestClient client;
  REQUIRE(make_multicast(client, 1) == CUDA_SUCCESS);
  make_memory(client, 2, 2 * granule);
  map_memory(client, 2, SessionTestClient::arena, 2 * granule);
  told();
  messages::cuMulticastBindMem bind;
  bind.mcHandle = allocation(2);
  bind.memHandle = allocation(1);
  bind.size = granule;
  CHECK(client.ask(bind).header.result == CUDA_ERROR_INVALID_VALUE);
  bind.mcHandle = allocation(1);
  CHECK(client.ask(bind).header.result == CUDA_ERROR_INVALID_VALUE);
  bind.memHandle = allocation(9);
  CHECK(client.ask(bind).header.result == CUDA_ERROR_INVALID_HANDLE);

  messages::cuMulticastBindAddr address;
  address.mcHandle = allocation(1);
  address.memptr = SessionTestClient::arena + granule;
  address.size = 2 * granule;  // past the end
  CHECK(client.ask(address).header.result == CUDA_ERROR_INVALID_VALUE);
  address.memptr = 0x1000;  // of the worker
  address.size = 4096;
  CHECK(client.ask(address).header.result == CUDA_ERROR_INVALID_VALUE);
  CHECK(told() == "");
  address.memptr = SessionTestClient::arena + granule;
  address.size = granule;
  CHECK(client.ask(address).header.result == CUDA_SUCCESS);
  CHECK(number(told(), 2) == SessionTestClient::arena + granule);
  messages::cuMulticastBindAddr_v2 of_device;
  of_device.mcHandle = allocation(1);
  of_device.mcOffset = 4 * granule;
  of_device.memptr = SessionTestClient::arena;
  of_device.size = granule;
  CHECK(client.ask(of_device).header.result == CUDA_SUCCESS);
  CHECK(number(told(), 3) == SessionTestClient::arena);

  // It is mapped and released like memory.
  map_memory(client, 1, SessionTestClient::arena + 16 * granule, 8 * granule);
  messages::SetPhysicalAccess access;
  access.address = SessionTestClient::arena + 16 * granule;
  access.size = 8 * granule;
  access.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  client.post(access);
  CHECK(client.deferred() == CUDA_SUCCESS);
  release(client, 1);
}

TEST_CASE("logical endpoints are the session's own") {
  told();
  SessionTestClient client;
  messages::cuLogicalEndpointIdReserve reserve;
  reserve.count = 4;
  const auto answer = client.ask(reserve);
  wire::Reader in(answer.fields);
  replies::cuLogicalEndpointIdReserve ids;
  REQUIRE(replies::cuLogicalEndpointIdReserve::decode(in, ids));
  CHECK(ids.baseLeId == 0xffff0000u);
  CHECK(told() == "reserve 4\n");

  CUlogicalEndpointProp prop{};
  prop.type = CU_LOGICAL_ENDPOINT_TYPE_UNICAST;
  prop.size = granule;
  messages::cuLogicalEndpointCreate create;
  create.leId = 7;
  std::memcpy(create.prop.data(), &prop, sizeof(prop));
  CHECK(client.ask(create).header.result == CUDA_ERROR_INVALID_VALUE);
  create.leId = ids.baseLeId + 1;
  CHECK(client.ask(create).header.result == CUDA_SUCCESS);
  prop.unicast.device = 3;
  std::memcpy(create.prop.data(), &prop, sizeof(prop));
  create.leId = ids.baseLeId + 2;
  CHECK(client.ask(create).header.result == CUDA_ERROR_INVALID_DEVICE);
  CHECK(told() == "create 4294901761 1 0 " + std::to_string(granule) + "\n");

  make_memory(client, 2, granule);
  messages::cuLogicalEndpointBindMem bind;
  bind.leId = ids.baseLeId + 1;
  bind.memHandle = allocation(2);
  bind.size = granule;
  CHECK(client.ask(bind).header.result == CUDA_SUCCESS);
  bind.leId = ids.baseLeId;
  CHECK(client.ask(bind).header.result == CUDA_ERROR_INVALID_VALUE);
  messages::cuLogicalEndpointQuery query;
  query.leId = ids.baseLeId;
  query.count = 5;
  CHECK(client.ask(query).header.result == CUDA_ERROR_INVALID_VALUE);
  query.count = 2;
  CHECK(client.ask(query).header.result == CUDA_SUCCESS);
  messages::cuLogicalEndpointIdRelease part;
  part.baseLeId = ids.baseLeId;
  part.count = 2;
  CHECK(client.ask(part).header.result == CUDA_ERROR_INVALID_VALUE);
}

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
