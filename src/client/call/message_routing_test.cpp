// What the generated rules say a message names: by that the client finds the worker it goes to.
#include "generated/message_routing.h"

#include <doctest/doctest.h>

#include <string>

using namespace gpupool;

namespace {

/// Writes down what a message names.
struct Named {
  std::string text;
  void handle(wire::Kind kind, std::uint64_t value) {
    text += "handle " + std::to_string(static_cast<int>(kind)) + ":" + std::to_string(value) + " ";
  }
  void device(int ordinal) { text += "device " + std::to_string(ordinal) + " "; }
  void address(std::uint64_t value) { text += "address " + std::to_string(value) + " "; }
};

template <class M>
std::string named(const M& m) {
  Named all;
  Routing<M>::name_owners(m, all);
  return all.text;
}

std::string handle(wire::Kind kind, std::uint64_t value) {
  return "handle " + std::to_string(static_cast<int>(kind)) + ":" + std::to_string(value) + " ";
}

/// A worker whose first device is the process's third.
struct Third {
  void context(std::uint64_t& value) const { value -= 2; }
  void device(std::int32_t& ordinal) const { ordinal -= 2; }
};

}  // namespace

TEST_CASE("a message of an export names what its roles say") {
  messages::cuStreamWaitEvent wait;
  wait.hStream = 5;
  wait.hEvent = 6;
  CHECK(named(wait) == handle(wire::Kind::stream, 5) + handle(wire::Kind::event, 6));
  messages::cuMemsetD8Async set;
  set.dstDevice = 100;
  set.hStream = 7;
  CHECK(named(set) == handle(wire::Kind::stream, 7) + "address 100 ");
  CHECK(Routing<messages::cuMemsetD8Async>::goes_to_memory);
  CHECK_FALSE(Routing<messages::cuStreamWriteValue32_v2>::goes_to_memory);
}

TEST_CASE("a message without an export names what its fields are called") {
  messages::Launch launch;
  launch.function = 3;
  launch.stream = 4;
  CHECK(named(launch) == handle(wire::Kind::function, 3) + handle(wire::Kind::stream, 4));
  messages::MapMemory map;
  map.device = 2;
  map.address = 1000;
  CHECK(named(map) == "device 2 ");  // the device says where the address is
  messages::CopyRowsOnDevice copy;
  copy.destination = 1;
  copy.source = 9;
  CHECK(named(copy) == handle(wire::Kind::stream, 0) + "address 1 address 9 ");
}

TEST_CASE("what a message makes says nothing about where it goes") {
  messages::CreateContext make;
  make.context = 70;
  make.device = 1;
  CHECK(named(make) == "device 1 ");
  messages::cuStreamCreate create;
  create.phStream = 8;
  CHECK(named(create).empty());
  messages::GraphClone clone;
  clone.graph = 11;
  clone.clone = 12;
  CHECK(named(clone) == handle(wire::Kind::graph, 11));
}

TEST_CASE("contexts and devices become those of the worker, and nothing else") {
  messages::MapPhysical map;
  map.place = 3;
  map.memory = 77;
  map.address = 5;
  Routing<messages::MapPhysical>::put_for(map, Third{});
  CHECK(map.place == 1);
  CHECK(map.memory == 77);
  CHECK(map.address == 5);
  messages::SynchronizeContext wait;
  wait.context = 9;
  Routing<messages::SynchronizeContext>::put_for(wait, Third{});
  CHECK(wait.context == 7);
  messages::WatchStream watch;  // its name is the client's own
  watch.watch = 9;
  Routing<messages::WatchStream>::put_for(watch, Third{});
  CHECK(watch.watch == 9);
}

TEST_CASE("objects that are numbers of one worker are not offered on several") {
  CHECK(Routing<messages::cuGreenCtxCreate>::one_worker_only);
  CHECK(Routing<messages::cuDeviceGetDevResource>::one_worker_only);
  CHECK_FALSE(Routing<messages::Launch>::one_worker_only);
}
