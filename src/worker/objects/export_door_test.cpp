#include "worker/objects/export_door.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

using namespace gpupool;
using worker::Export;
using worker::ExportDoor;
using worker::ExportTable;
using worker::fetch_export;
using worker::FetchedExport;
using worker::PhysicalMemory;
using worker::UserKey;

namespace {

constexpr UserKey alice{1}, bob{2};
constexpr std::uint64_t granule = 2u << 20;
std::atomic<int> released{0};

/// A driver that makes memory and gives a pipe's end for it.
worker::DriverApi driver() {
  worker::DriverApi api{};
  api.cuMemCreate_ = [](CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp*,
                        unsigned long long) {
    *handle = 42;
    return CUDA_SUCCESS;
  };
  api.cuMemRelease_ = [](CUmemGenericAllocationHandle) {
    ++released;
    return CUDA_SUCCESS;
  };
  api.cuMemExportToShareableHandle_ = [](void* out, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                         unsigned long long) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE(write(ends[1], "memory", 6) == 6);
    close(ends[1]);
    *static_cast<int*>(out) = ends[0];
    return CUDA_SUCCESS;
  };
  return api;
}

/// A worker's half of the exchange.
struct Office {
  worker::DriverApi api = driver();
  worker::MemoryAccount account{64 << 20};
  ExportTable table{worker::random_office()};
  ExportDoor door{table.office(), alice, table};
  std::shared_ptr<PhysicalMemory> memory;

  Office() {
    REQUIRE(door.open());
    REQUIRE(PhysicalMemory::create(api, account, granule, {}, memory) == CUDA_SUCCESS);
  }
  ExportTicket give_memory() {
    REQUIRE(memory->share() == CUDA_SUCCESS);
    Export object;
    object.uuid = std::string(32, 'a');
    object.memory = memory;
    object.offset = 512;
    object.length = 1000;
    const auto ticket = table.add(object);
    REQUIRE(ticket);
    return *ticket;
  }
};

int say_to_door(const Office& office, std::size_t bytes) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = "gpupool-export-";
  for (const auto byte : office.table.office()) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    name += two;
  }
  name.copy(address.sun_path + 1, name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  const std::vector<char> noise(bytes, 'x');
  static_cast<void>(send(fd, noise.data(), noise.size(), MSG_NOSIGNAL));
  char answer[16];
  const auto got = static_cast<int>(recv(fd, answer, sizeof(answer), 0));
  close(fd);
  return got;
}

}  // namespace

TEST_CASE("a worker of the same user gets the memory's descriptor for a ticket") {
  Office office;
  const ExportTicket ticket = office.give_memory();
  FetchedExport got;
  REQUIRE(fetch_export(ticket, alice, got) == CUDA_SUCCESS);
  CHECK(got.size == granule);
  CHECK(got.object.offset == 512);
  CHECK(got.object.length == 1000);
  CHECK(got.object.uuid == std::string(32, 'a'));
  char text[6]{};
  REQUIRE(read(got.descriptor.fd(), text, sizeof(text)) == 6);
  CHECK(std::string(text, 6) == "memory");
}

TEST_CASE("neither another user nor a changed ticket gets anything") {
  Office office;
  ExportTicket ticket = office.give_memory();
  FetchedExport got;
  CHECK(fetch_export(ticket, bob, got) == CUDA_ERROR_INVALID_HANDLE);
  CHECK_FALSE(got.descriptor);
  ticket.secret[31] ^= 1;
  CHECK(fetch_export(ticket, alice, got) == CUDA_ERROR_INVALID_HANDLE);
  ticket.secret[31] ^= 1;
  ticket.kind = static_cast<std::uint32_t>(ExportKind::physical);  // memory that is no block of its own
  CHECK(fetch_export(ticket, alice, got) == CUDA_ERROR_INVALID_HANDLE);
  ticket.kind = static_cast<std::uint32_t>(ExportKind::memory);
  ticket.office[0] ^= 1;  // a worker that is not there
  CHECK(fetch_export(ticket, alice, got) == CUDA_ERROR_INVALID_HANDLE);
  ticket.office[0] ^= 1;
  CHECK(fetch_export(ticket, alice, got) == CUDA_SUCCESS);
}

TEST_CASE("a ticket keeps no memory: what the session has freed is gone") {
  Office office;
  const ExportTicket ticket = office.give_memory();
  released = 0;
  office.memory.reset();
  CHECK(released == 1);
  CHECK(office.account.used() == 0);
  FetchedExport got;
  CHECK(fetch_export(ticket, alice, got) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("noise at the door ends the visit, not the door") {
  Office office;
  const ExportTicket ticket = office.give_memory();
  for (const std::size_t bytes : {1, 103, 104, 105, 4096}) CHECK(say_to_door(office, bytes) <= 0);
  FetchedExport got;
  CHECK(fetch_export(ticket, alice, got) == CUDA_SUCCESS);
}
