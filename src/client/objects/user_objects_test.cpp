#include "client/objects/user_objects.h"

#include <doctest/doctest.h>

#include <limits>

using namespace gpupool::client;

namespace {

/// An object of the program's that notices its end.
struct Noticed {
  int ends = 0;
  CUuserObject make(unsigned references) {
    return make_user_object(this, [](void* data) { ++static_cast<Noticed*>(data)->ends; }, references);
  }
};

}  // namespace

TEST_CASE("a graph takes over references that the program has, and no more") {
  Noticed noticed;
  const CUuserObject object = noticed.make(2);
  UserObjectReferences graph;
  CHECK_FALSE(graph.adopt(object, 3));
  CHECK(graph.empty());
  CHECK(graph.adopt(object, 2));
  CHECK_FALSE(graph.adopt(object, 1));  // all are the graph's
  CHECK_FALSE(release_user_object(object, 1));
  CHECK_FALSE(graph.give(object, 3));
  CHECK(graph.give(object, 1));
  CHECK(release_user_object(object, 1));
  CHECK(noticed.ends == 0);
  graph.clear();
  CHECK(noticed.ends == 1);
  CHECK_FALSE(graph.adopt(object, 1));
  CHECK_FALSE(retain_user_object(object, 1));
}

TEST_CASE("a copy of what a graph holds keeps the object by itself") {
  Noticed noticed;
  const CUuserObject object = noticed.make(1);
  UserObjectReferences graph, clone;
  CHECK(graph.retain(object, 1));
  clone.add(graph);
  CHECK(release_user_object(object, 1));
  graph.clear();
  CHECK(noticed.ends == 0);
  clone.clear();
  CHECK(noticed.ends == 1);
}

TEST_CASE("references are not counted beyond what a number holds") {
  constexpr unsigned most = std::numeric_limits<unsigned>::max();
  Noticed noticed;
  const CUuserObject object = noticed.make(1);
  UserObjectReferences graph;
  CHECK(retain_user_object(object, most - 1));
  CHECK_FALSE(retain_user_object(object, 1));
  CHECK_FALSE(graph.retain(object, 1));
  CHECK(release_user_object(object, most));
  CHECK(noticed.ends == 1);
}
