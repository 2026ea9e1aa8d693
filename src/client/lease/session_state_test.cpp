#include "client/lease/session_state.h"

#include <doctest/doctest.h>

#include <string>

using namespace gpupool::client;
using Kind = SessionState::Step::Kind;

namespace {

SessionFile attached(std::uint32_t epoch, std::uint8_t session = 1) {
  SessionFile file;
  file.state = FileState::attached;
  file.epoch = epoch;
  file.session[0] = session;
  file.generation = epoch;
  return file;
}

SessionFile parked(std::uint64_t generation) {
  SessionFile file;
  file.state = FileState::parked;
  file.session[0] = 1;
  file.generation = generation;
  file.message = "idle for 10 minutes";
  return file;
}

const std::string text =
    "version 1\nstate attached\nsession 000102030405060708090a0b0c0d0e0f\ngeneration 3\nepoch 7\naddress "
    "127.0.0.1:40123\n"
    "token 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f\nmessage hello there\nsoftware "
    "1\nunknown x\n";

}  // namespace

TEST_CASE("without an attached share a call is refused, and says so once per generation") {
  SessionState s;
  const auto first = s.needs_worker(parked(1), {});
  CHECK(first.kind == Kind::refuse);
  CHECK(first.message == "idle for 10 minutes");
  CHECK(first.log);
  CHECK_FALSE(s.needs_worker(parked(1), {}).log);
  CHECK(s.needs_worker(parked(2), {}).log);
  CHECK(s.needs_worker(std::nullopt, {}).message.find("%%gpu") != std::string::npos);
}

TEST_CASE("what the holder has told the user is known, and what this process finds out itself is not it") {
  SessionState s;
  auto closed = parked(1);
  closed.state = FileState::closed;
  closed.told = true;
  CHECK(s.needs_worker(closed, {}).told);
  closed.told = false;
  CHECK_FALSE(s.needs_worker(closed, {}).told);
  s.connected(attached(7));
  s.lost();
  auto file = attached(7);
  file.told = true;
  CHECK_FALSE(s.needs_worker(file, {}).told);
  closed.told = true;
  CHECK(s.needs_worker(closed, {}).told);
  closed.message.clear();
  CHECK_FALSE(s.needs_worker(closed, {}).told);
}

TEST_CASE("attach, detach, attach again: one connection, a lease each time") {
  SessionState s;
  REQUIRE(s.needs_worker(attached(7), {}).kind == Kind::connect);
  s.connected(attached(7));
  CHECK(s.needs_worker(attached(7), {}).kind == Kind::ready);
  CHECK(s.epoch() == 7);
  s.detached();
  CHECK(s.state() == SessionState::State::parked);
  CHECK(s.needs_worker(parked(2), {}).kind == Kind::refuse);
  CHECK(s.needs_worker(attached(8), {}).kind == Kind::lease);
  s.leased(attached(8));
  CHECK(s.epoch() == 8);
}

TEST_CASE("an epoch that the worker refused is not tried again, a newer one is") {
  SessionState s;
  s.connected(attached(7));
  s.refused(7);
  CHECK(s.state() == SessionState::State::parked);
  CHECK(s.needs_worker(attached(7), {}).kind == Kind::refuse);
  CHECK(s.needs_worker(attached(8), {}).kind == Kind::lease);
}

TEST_CASE("a refusal of an old epoch does not disturb the new lease") {
  SessionState s;
  s.connected(attached(7));
  s.detached();
  s.leased(attached(8));
  s.refused(7);
  CHECK(s.state() == SessionState::State::attached);
}

TEST_CASE("a lost session stays lost, and another one may follow it") {
  SessionState s;
  s.connected(attached(7));
  s.lost();
  CHECK(s.needs_worker(attached(8), {}).kind == Kind::refuse);
  s.refused(9);
  CHECK(s.state() == SessionState::State::lost);
  CHECK(s.needs_worker(attached(9, 2), {}).kind == Kind::connect);
  s.connected(attached(9, 2));
  CHECK(s.state() == SessionState::State::attached);
  CHECK(s.needs_worker(attached(9, 2), {}).kind == Kind::ready);
}

TEST_CASE("another session's file means another connection, and no lease of this one's") {
  SessionState s;
  s.connected(attached(7));
  s.detached();
  CHECK(s.needs_worker(attached(8, 2), {}).kind == Kind::connect);
}

TEST_CASE("why a session was ended is known until the next one begins") {
  SessionState s;
  s.connected(attached(7));
  s.ended();
  CHECK(s.state() == SessionState::State::lost);
  const std::string why = s.needs_worker(attached(7), {}).message;
  s.connected(attached(8, 2));
  s.lost();
  CHECK(s.needs_worker(attached(8, 2), {}).message != why);
}

TEST_CASE("after the end of a session a call may wish for a GPU, and after a mere loss not") {
  SessionState s;
  s.connected(attached(7));
  s.lost();
  CHECK_FALSE(s.wants_lease(parked(2)));
  auto closed = parked(3);
  closed.state = FileState::closed;
  CHECK(s.wants_lease(closed));
  s.ended();
  CHECK(s.wants_lease(parked(4)));
  CHECK_FALSE(s.wants_lease(attached(8, 2)));
}

TEST_CASE("a call that lacks nothing but a lease could go on with one; any other could not") {
  SessionState s;
  CHECK(s.wants_lease(parked(1)));
  CHECK_FALSE(s.wants_lease(attached(7)));
  s.connected(attached(7));
  CHECK_FALSE(s.wants_lease(parked(2)));  // the worker has the last word about a lease that was not refused
  s.detached();
  CHECK(s.wants_lease(parked(2)));
  CHECK_FALSE(s.wants_lease(attached(8)));
  auto ended = parked(3);
  ended.state = FileState::closed;
  CHECK_FALSE(s.wants_lease(ended));
  auto of_another = parked(3);
  of_another.session[0] = 2;
  CHECK_FALSE(s.wants_lease(of_another));
  s.leased(attached(8));
  s.refused(8);
  CHECK(s.wants_lease(attached(8)));  // the file is behind: this lease is over
  s.lost();
  CHECK_FALSE(s.wants_lease(parked(4)));
}

TEST_CASE("the file is read key by key; unknown keys are skipped") {
  std::string error;
  const auto file = parse_session_file(text, error);
  REQUIRE(file);
  CHECK(file->state == FileState::attached);
  CHECK(file->epoch == 7);
  CHECK(file->generation == 3);
  CHECK(file->address == "127.0.0.1:40123");
  CHECK(file->session[15] == 15);
  CHECK(file->token[31] == 15);
  CHECK(file->message == "hello there");
  CHECK(file->software);
}

TEST_CASE("a file that is wrong is refused, and the error quotes no secret") {
  const auto refused = [](std::string changed) {
    std::string error;
    const auto file = parse_session_file(changed, error);
    CHECK_FALSE(file);
    CHECK(error.find("0001") == std::string::npos);
    CHECK_FALSE(error.empty());
  };
  const auto without = [](const std::string& key) {
    std::string out;
    std::size_t at = 0;
    while (at < text.size()) {
      const auto end = text.find('\n', at) + 1;
      if (text.compare(at, key.size() + 1, key + " ") != 0) out += text.substr(at, end - at);
      at = end;
    }
    return out;
  };
  for (const auto* key : {"version", "session", "token", "address", "epoch"}) refused(without(key));
  refused("version 2\n");
  refused("");
  auto short_token = text;
  short_token.erase(short_token.find("token") + 6, 2);
  refused(short_token);
  auto bad_state = text;
  bad_state.replace(bad_state.find("attached"), 8, "elevated");
  refused(bad_state);
}

namespace {

/// Attached at two workers, the second one under an epoch of its own.
SessionFile on_two(std::uint32_t epoch, std::uint32_t second) {
  SessionFile file = attached(epoch);
  file.further.resize(1);
  file.further[0].session[0] = 2;
  file.further[0].epoch = second;
  file.devices = {1, 1};
  return file;
}

}  // namespace

TEST_CASE("a refusal by one worker parks the session, which then needs a newer lease of that worker") {
  SessionState s;
  REQUIRE(s.needs_worker(on_two(7, 3), {}).kind == Kind::connect);
  s.connected(on_two(7, 3));
  CHECK(s.epoch(0) == 7);
  CHECK(s.epoch(1) == 3);
  s.refused(2, 1);
  CHECK(s.state() == SessionState::State::attached);
  s.refused(3, 1);
  CHECK(s.state() == SessionState::State::parked);
  CHECK(s.needs_worker(on_two(7, 3), {}).kind == Kind::refuse);
  CHECK(s.needs_worker(on_two(8, 3), {}).kind == Kind::refuse);
  CHECK(s.wants_lease(on_two(8, 3)));
  CHECK(s.needs_worker(on_two(8, 4), {}).kind == Kind::lease);
  s.leased(on_two(8, 4));
  CHECK(s.epoch(1) == 4);
}

TEST_CASE("the workers of a session are those of its first attach; another session has none of them") {
  SessionState s;
  s.connected(on_two(7, 3));
  s.detached();
  CHECK(s.needs_worker(attached(8), {}).kind == Kind::refuse);
  SessionFile other = on_two(8, 4);
  other.further[0].session[0] = 9;
  CHECK(s.needs_worker(other, {}).message.find("replaced") != std::string::npos);
  SessionState alone;
  alone.connected(attached(7));
  alone.detached();
  CHECK(alone.needs_worker(on_two(8, 1), {}).kind == Kind::refuse);
  other.session[0] = 8;
  CHECK(s.needs_worker(other, {}).kind == Kind::connect);
}

TEST_CASE("a call waits while the holder has asked again, and for no other session than its own") {
  using Prospect = SessionState::Prospect;
  SessionFile waiting = parked(2);
  waiting.state = FileState::waiting;
  SessionState fresh;
  CHECK(fresh.prospect(waiting) == Prospect::sure);  // it has not begun yet
  SessionState s;
  s.connected(attached(7));
  CHECK(s.prospect(waiting) == Prospect::none);  // its lease still holds
  s.detached();
  CHECK(s.prospect(waiting) == Prospect::sure);
  CHECK(s.prospect(parked(3)) == Prospect::none);
  waiting.session[0] = 2;
  CHECK(s.prospect(waiting) == Prospect::none);
  s.lost();
  waiting.session[0] = 1;
  CHECK(s.prospect(waiting) == Prospect::none);
}

TEST_CASE("a lease that the worker refuses may be one that its holder does not know to be over") {
  using Prospect = SessionState::Prospect;
  SessionState s;
  s.connected(attached(7));
  s.refused(7);
  SessionFile file = attached(7);
  CHECK(s.prospect(file) == Prospect::none);
  file.resumes = true;
  CHECK(s.prospect(file) == Prospect::soon);
  file.epoch = 8;
  CHECK(s.prospect(file) == Prospect::none);
}
