#include "client/process/interrupt_words.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <clocale>

#include "client/process/counters.h"
#include "wire/bytes.h"

using namespace gpupool;
using client::Inquiries;
using client::what_runs;
using wire::Inquiry;
using wire::WorkState;

namespace {

Inquiry running(std::string kernel, std::uint64_t milliseconds) {
  Inquiry one;
  one.state = WorkState::running;
  one.kernel = std::move(kernel);
  one.milliseconds = milliseconds;
  return one;
}

std::string words(const Inquiries& answers) {
  return what_runs(answers, std::chrono::milliseconds(7999));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the kernel and since when it runs") {
  CHECK(words({running("forever", 14'300)}) ==
        "The GPU still runs kernel \"forever\" (since 14 s). Interrupt again to end its GPU session: arrays "
        "in GPU "
        "memory are lost, Python variables stay.");
  CHECK(has(words({running("", 3000)}), "(since 3 s)"));
}

TEST_CASE("of several workers the one that runs something is told of") {
  Inquiry turn;
  turn.awaits_turn = true;
  CHECK(has(words({Inquiry{}, turn, running("k", 1000), std::nullopt}), "\"k\""));
  CHECK(has(words({Inquiry{}, turn}), "turn"));
  CHECK(client::most_telling({std::nullopt, std::nullopt}) == nullptr);
}

TEST_CASE(
    "a worker that does not answer, or knows of nothing, is told of with how long the call has waited") {
  const std::string silent = words({std::nullopt}), without = words({Inquiry{}}),
                    some = words({Inquiry{}, std::nullopt});
  CHECK(has(silent, "7 s"));
  CHECK(has(without, "7 s"));
  CHECK(silent != without);
  CHECK(some == silent);
}

TEST_CASE("a lease that ended is told of") {
  Inquiry work = running("k", 2000);
  work.state = WorkState::draining;
  const std::string draining = words({work});
  work.state = WorkState::stopped;
  const std::string stopped = words({work});
  CHECK(has(draining, "lease"));
  CHECK(has(stopped, "lease"));
  CHECK(draining != stopped);
}

TEST_CASE("what a worker calls a kernel cannot write on the terminal or end the JSON") {
  const Inquiries answers{running("a\x1b[2J\"\\\n", 0)};
  const auto harmless = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
  };
  CHECK(harmless(words(answers)));
  CHECK(harmless(client::as_json(answers)));
  CHECK(has(client::as_json(answers), "\"kernel\":\"a?[2J???\""));
}

TEST_CASE("the failure is told, whichever worker has it") {
  Inquiry failed;
  failed.failure = 700;
  failed.failed_kernel = "bad";
  const std::string text = client::as_json({running("k", 1500), failed});
  CHECK(has(text, "\"work\":\"running\""));
  CHECK(has(text, "\"seconds\":1.5"));
  CHECK(has(text, "\"failure\":700"));
  CHECK(has(text, "\"failed_kernel\":\"bad\""));
  CHECK(has(client::as_json({}), "\"answers\":false"));
}

TEST_CASE("numbers are read by programs, whatever the locale is") {
  const char* const before = std::setlocale(LC_NUMERIC, nullptr);
  const std::string kept = before != nullptr ? before : "C";
  // Not every machine has one with a comma.
  bool comma = false;
  for (const char* const name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C.UTF-8"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    comma = comma || *std::localeconv()->decimal_point == ',';
    CHECK(has(client::as_json({running("k", 1500)}), "\"seconds\":1.500,"));
    CHECK(client::Counters().json().find("\"ask_seconds\":0.000000000,") != std::string::npos);
    wire::StatsReply counted;
    counted.device_ns = 1'500'000'000;
    CHECK(has(client::counted_json(counted), "\"device_seconds\":1.500000,"));
  }
  if (!comma) MESSAGE("no locale with a comma is here: only points were seen");
  std::setlocale(LC_NUMERIC, kept.c_str());
}

TEST_CASE("an inquiry's answer that is cut, too long or senseless is refused") {
  Inquiry full = running(std::string(200, 'k'), 5);
  full.failed_kernel = "f";
  wire::Buffer buffer;
  wire::Writer writer(buffer);
  full.encode(writer);
  const auto bytes = buffer.bytes();
  wire::Reader in(bytes);
  Inquiry back;
  REQUIRE(Inquiry::decode(in, back));
  CHECK(back.kernel == std::string(Inquiry::most_kernel, 'k'));
  CHECK(back.failed_kernel == "f");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    wire::Reader cut(bytes.first(size));
    CHECK_FALSE(Inquiry::decode(cut, back));
  }
  for (const std::size_t at : {0, 1}) {  // the state, whether a turn is awaited
    std::vector<std::byte> wrong(bytes.begin(), bytes.end());
    wrong[at] = std::byte{4};
    wire::Reader read(wrong);
    CHECK_FALSE(Inquiry::decode(read, back));
  }
}
