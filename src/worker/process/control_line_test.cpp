#include "worker/process/control_line.h"

#include <doctest/doctest.h>

#include <random>

using namespace gpupool::worker;

namespace {

std::string reason_of(std::string_view line) {
  const ControlCommand command = parse_control_line(line);
  const auto* bad = std::get_if<BadCommand>(&command);
  return bad != nullptr ? bad->reason : "";
}

}  // namespace

TEST_CASE("a lease line") {
  const ControlCommand command =
      parse_control_line("lease epoch=8 deadline_ns=99 share=0:200:1638,1:1000:8192");
  const auto& lease = std::get<LeaseCommand>(command);
  CHECK(lease.epoch == 8);
  CHECK(lease.deadline_ns == 99);
  REQUIRE(lease.shares.size() == 2);
  CHECK(lease.shares[1].ordinal == 1);
  CHECK(lease.shares[1].milli == 1000);
  CHECK(lease.shares[1].mib == 8192);
}

TEST_CASE("a renewal may leave the shares out; unknown fields are skipped") {
  const ControlCommand command = parse_control_line("lease deadline_ns=99 epoch=8 colour=blue");
  CHECK(std::get<LeaseCommand>(command).shares.empty());
}

TEST_CASE("a lease may name the devices to resume onto") {
  const ControlCommand command = parse_control_line(
      "lease epoch=8 deadline_ns=99 device=1:000102030405060708090A0B0C0D0E0F,0:" + std::string(32, 'f'));
  const auto& lease = std::get<LeaseCommand>(command);
  REQUIRE(lease.devices.size() == 2);
  CHECK(lease.devices[0].ordinal == 1);
  CHECK(lease.devices[0].uuid == "000102030405060708090a0b0c0d0e0f");
  const std::string uuid(32, 'a');
  for (const std::string& device : {std::string(), std::string("0"), "0:" + uuid + "a", "0:" + uuid + ",",
                                    "0:" + uuid + ",0:" + uuid, "64:" + uuid, "0:" + std::string(32, 'g')}) {
    CHECK(reason_of("lease epoch=8 deadline_ns=1 device=" + device) == "lease: bad device");
  }
}

TEST_CASE("park and export") {
  CHECK(std::get<ParkCommand>(parse_control_line("park epoch=8")).epoch == 8);
  CHECK(reason_of("park") == "park: no epoch");
  CHECK(reason_of("park epoch=0") == "park: bad epoch");
  CHECK(std::get<ExportCommand>(parse_control_line("export folder=/a b/c")).folder == "/a b/c");
  CHECK(reason_of("export") == "export: no folder");
  CHECK(reason_of("export folder=relative") == "export: bad folder");
}

TEST_CASE("revoke, stats, stop") {
  CHECK(std::get<RevokeCommand>(parse_control_line("revoke epoch=8")).epoch == 8);
  CHECK(std::holds_alternative<StatsCommand>(parse_control_line("stats")));
  CHECK(std::holds_alternative<StopCommand>(parse_control_line("stop")));
}

TEST_CASE("what cannot be read is named") {
  CHECK(reason_of("") == "unknown command");
  CHECK(reason_of("stop now") == "unknown command");
  CHECK(reason_of("lease") == "lease: no epoch");
  CHECK(reason_of("lease epoch=8") == "lease: no deadline_ns");
  for (const char* epoch : {"", "0", "-1", "+8", "8.0", "4294967296", "0x8"}) {
    CHECK(reason_of("lease deadline_ns=1 epoch=" + std::string(epoch)) == "lease: bad epoch");
    CHECK(reason_of("revoke epoch=" + std::string(epoch)) == "revoke: bad epoch");
  }
  CHECK(reason_of("lease epoch=8 deadline_ns=0") == "lease: bad deadline_ns");
  CHECK(reason_of("lease epoch=8 deadline_ns=9223372036854775808") == "lease: bad deadline_ns");
  for (const char* share : {"", "0", "0:200", "0:0:1", "0:1001:1", "0:1:0", "0:1:1,", ",0:1:1", "0:1:1,0:2:2",
                            "64:1:1", "0:1:1:1", "a:b:c", "0:1:99999999999999999999"}) {
    CHECK(reason_of("lease epoch=8 deadline_ns=1 share=" + std::string(share)) == "lease: bad share");
  }
  CHECK(reason_of("revoke") == "revoke: no epoch");
  CHECK(reason_of(std::string(max_control_line + 1, 'x')) == "line too long");
}

TEST_CASE("no line of random bytes breaks the parser") {
  std::mt19937 random(1);
  const std::string_view alphabet = "lease revok=:,0123456789 _dn\0\n\x7f\xff";
  for (int round = 0; round < 20'000; ++round) {
    std::string line = round % 2 == 0 ? "lease epoch=8 deadline_ns=" : "";
    for (std::size_t i = random() % 60; i > 0; --i) line += alphabet[random() % alphabet.size()];
    (void)parse_control_line(line);
  }
}

TEST_CASE("the stats line is exactly the contract's") {
  UsageSnapshot usage;
  usage.device_ns = 1;
  usage.kernels = 2;
  usage.posts = 3;
  usage.asks = 4;
  usage.calls = 7;
  usage.ask_ns = 5;
  usage.bytes_in = 6;
  usage.bytes_out = 7;
  usage.last_submit_ns = 8;
  usage.in_flight = true;
  const StatsLine line{{LeaseState::attached, 8, 100}, true, usage, {{10, 20, 30}, {40, 50, 60}}};
  CHECK(format_stats(line) ==
        "stats epoch=8 state=attached client=1 device_ns=1 kernels=2 calls=7 posts=3 asks=4 ask_ns=5 "
        "bytes_in=6 "
        "bytes_out=7 mem=0:10:20,1:40:50 last_submit_ns=8 in_flight=1 place=device park=ok move=ok "
        "enforcement=none work=none work_ms=0 failed=0");
  StatsLine parked = line;
  parked.place = {true, "", "arrays"};
  parked.enforcement = Enforcement::soft;
  CHECK(format_stats(parked).find(" place=host park=ok move=arrays enforcement=soft ") != std::string::npos);
  parked.enforcement = Enforcement::mps;
  CHECK(format_stats(parked).find(" enforcement=mps ") != std::string::npos);
  StatsLine busy = line;
  busy.now_ns = 20'000'000'000;
  busy.work = {WorkState::draining, "forever", 8'000'000'000};
  CHECK(format_stats(busy).ends_with(" work=draining kernel=forever work_ms=12000 failed=0"));
  busy.work = {WorkState::stopped, "", 19'500'000'000};
  busy.failure = {700, "poke"};
  CHECK(format_stats(busy).ends_with(" work=stopped work_ms=500 failed=700 failed_kernel=poke"));
}
