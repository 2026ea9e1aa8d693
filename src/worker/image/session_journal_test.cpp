// What is left of a session's calls when it moves.
#include "worker/image/session_journal.h"

#include <doctest/doctest.h>

#include "generated/messages.h"

using namespace gpupool;
using namespace gpupool::worker;

namespace {

std::uint64_t handle(wire::Kind kind, std::uint32_t index, std::uint16_t generation = 0) {
  return wire::Handle{kind, generation, index}.value();
}

/// Calls and the objects that they make and end, as the worker sees them.
struct Session {
  HandleTable handles;
  SessionJournal journal;
  std::uint64_t context = handle(wire::Kind::context, 0);

  Session() { make(context); }
  void make(std::uint64_t value) { handles.bind(wire::Handle::from(value).kind, value, value); }
  void end(std::uint64_t value) { handles.drop(wire::Handle::from(value).kind, value); }
  template <class M>
  void call(const M& message, std::uint32_t lane = 0) {
    wire::Buffer body;
    wire::Writer out(body);
    message.encode(out);
    journal.note(static_cast<std::uint16_t>(M::id), lane, context, body.bytes(), handles);
  }
  void create_stream(std::uint64_t stream) {
    make(stream);
    messages::cuStreamCreate create;
    create.phStream = stream;
    call(create);
  }
  void set_attribute(std::uint64_t stream, std::int32_t attribute, const std::string& value,
                     std::uint32_t lane = 0) {
    messages::SetStreamAttribute set;
    set.stream = stream;
    set.attribute = attribute;
    set.value = std::as_bytes(std::span(value));
    call(set, lane);
  }
  std::size_t left() { return journal.calls(handles).size(); }
};

const std::uint64_t stream = handle(wire::Kind::stream, 3);

}  // namespace

TEST_CASE("what made an object is kept while the object is there, and so is what was set") {
  Session session;
  session.create_stream(stream);
  session.set_attribute(stream, 1, "one");
  CHECK(session.left() == 2);
  session.end(stream);
  CHECK(session.left() == 0);
}

TEST_CASE("of settings the last one counts, for each of what is set") {
  Session session;
  session.create_stream(stream);
  for (int n = 0; n < 10; ++n) {
    session.set_attribute(stream, 1, std::to_string(n));
    session.set_attribute(stream, 2, "two");
  }
  REQUIRE(session.left() == 3);
  const auto& calls = session.journal.calls(session.handles);
  CHECK(calls[0].names.made == stream);
  const std::string last(reinterpret_cast<const char*>(calls[1].body.data()), calls[1].body.size());
  CHECK(last.ends_with('9'));
}

TEST_CASE("the per-thread stream is another one for each thread") {
  Session session;
  session.set_attribute(2, 1, "a", 1);
  session.set_attribute(2, 1, "b", 2);
  session.set_attribute(2, 1, "c", 1);
  CHECK(session.left() == 2);
}

TEST_CASE("a handle that was given to another object is not taken for the first one's") {
  Session session;
  session.create_stream(stream);
  session.set_attribute(stream, 1, "of the first");
  session.end(stream);
  session.create_stream(stream);
  CHECK(session.left() == 1);
}

TEST_CASE("a context takes its settings along, and leaves the objects that outlive it") {
  Session session;
  const std::uint64_t first = session.context, other = handle(wire::Kind::context, 5);
  session.make(other);
  session.context = other;
  session.create_stream(stream);
  messages::cuCtxSetLimit limit;
  session.call(limit);
  session.context = first;
  CHECK(session.left() == 2);
  session.end(other);
  CHECK(session.left() == 1);
}

TEST_CASE("who makes and ends objects for ever needs no more memory than who does not") {
  Session session;
  session.create_stream(stream);
  for (std::uint32_t n = 0; n < 100'000; ++n) {
    const std::uint64_t event = handle(wire::Kind::event, n % 7, static_cast<std::uint16_t>(n / 7));
    session.make(event);
    messages::cuEventCreate create;
    create.phEvent = event;
    session.call(create);
    session.end(event);
  }
  CHECK(session.left() == 1);
}

TEST_CASE("questions and work are not written down") {
  Session session;
  session.call(messages::cuEventQuery{});
  session.call(messages::Launch{});
  session.call(messages::MapMemory{});
  CHECK(session.left() == 0);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::none);
}

TEST_CASE("an object or a call that cannot be carried is in the way until it is gone") {
  Session session;
  const std::uint64_t graph = handle(wire::Kind::graph, 1), module = handle(wire::Kind::module, 2);
  session.make(graph);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::graphs);
  session.end(graph);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::none);
  session.handles.adopt(wire::Kind::texture_object, 77);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::arrays);
  session.handles.disown(wire::Kind::texture_object, 77);
  session.make(module);
  messages::FindGlobal find;
  find.image = module;
  for (int n = 0; n < 3; ++n) session.call(find);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::global_addresses);
  CHECK(session.left() == 1);
  session.end(module);
  CHECK(session.journal.obstacle(session.handles) == MoveObstacle::none);
}
