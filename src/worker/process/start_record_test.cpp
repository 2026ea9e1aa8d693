#include "worker/process/start_record.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <stdexcept>

using namespace gpupool::worker;

namespace {

const std::string session(32, 'a');
const std::string token(64, 'b');
const std::string uuid(32, 'C');
const std::string good = "session " + session + "\ntoken " + token +
                         "\nepoch 7\ndeadline_ns 123456789\ndevice 1 " + uuid + " 200 1638\n";

std::string error_of(const std::string& text) {
  try {
    (void)parse_start_record(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = good;
  text.replace(text.find(from), from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("a whole record") {
  const StartRecord record = parse_start_record(good + "device 0 " + uuid +
                                                " 1000 8192\na_newer_key /run/x y.log\n"
                                                "image_cache /run/images of/user\nimage_cache_mib 4096\n\n");
  CHECK(record.session[0] == 0xaa);
  CHECK(record.token[31] == 0xbb);
  CHECK(record.epoch == 7);
  CHECK(record.deadline_ns == 123456789);
  REQUIRE(record.devices.size() == 2);
  CHECK(record.devices[0].driver_ordinal == 1);
  CHECK(record.devices[0].uuid == std::string(32, 'c'));
  CHECK(record.devices[0].milli == 200);
  CHECK(record.devices[0].mib == 1638);
  CHECK(record.devices[1].driver_ordinal == 0);
  CHECK(record.image_cache == "/run/images of/user");
  CHECK(record.image_cache_mib == 4096);
  CHECK_FALSE(record.user);
}

TEST_CASE("a record may say what stands for the user") {
  const StartRecord record = parse_start_record(good + "user " + std::string(64, 'd') + "\n");
  REQUIRE(record.user);
  CHECK((*record.user)[31] == 0xdd);
  CHECK(error_of(good + "user " + std::string(63, 'd') + "\n") == "start record: bad value for `user`");
  CHECK(error_of(good + "user ann\n") == "start record: bad value for `user`");
}

TEST_CASE("a record says what part MPS has in it") {
  CHECK(parse_start_record(good).mps == Mps::none);
  CHECK(parse_start_record(good + "mps beside\n").mps == Mps::beside);
  CHECK(parse_start_record(good + "mps partition\n").mps == Mps::partition);
  CHECK(error_of(good + "mps 1\n") == "start record: bad value for `mps`");
}

TEST_CASE("unknown keys are skipped, for newer agents") {
  CHECK(error_of(good + "colour blue\n").empty());
}

TEST_CASE("what is after the empty line is not read") {
  CHECK(error_of(good + "\nepoch banana\n").empty());
}

TEST_CASE("every bad value is refused by the name of its key") {
  CHECK(error_of(with(session, "aa")) == "start record: bad value for `session`");
  CHECK(error_of(with(session, session + "aa")) == "start record: bad value for `session`");
  CHECK(error_of(with(token, std::string(64, 'g'))) == "start record: bad value for `token`");
  for (const char* epoch : {"epoch 0", "epoch -1", "epoch 4294967296", "epoch 7x", "epoch  7", "epoch "}) {
    CHECK(error_of(with("epoch 7", epoch)) == "start record: bad value for `epoch`");
  }
  CHECK(error_of(with("deadline_ns 123456789", "deadline_ns 9223372036854775808")) ==
        "start record: bad value for `deadline_ns`");
  for (const char* device :
       {" 0 1638", " 1001 1638", " 200 0", " 200", " 200 1638 1", " 200 18446744073709551615"}) {
    CHECK(error_of(with(" 200 1638", device)) == "start record: bad value for `device`");
  }
  CHECK(error_of(with("device 1", "device -1")) == "start record: bad value for `device`");
}

TEST_CASE("an error never repeats the token") {
  CHECK(error_of(with(token, token + "zz")).find("bbbb") == std::string::npos);
}

TEST_CASE("missing and double keys are refused") {
  CHECK(error_of("") == "start record: `session` is missing");
  CHECK(error_of(with("token " + token + "\n", "")) == "start record: `token` is missing");
  CHECK(error_of(good + "epoch 8\n") == "start record: `epoch` is given twice");
  CHECK(error_of("session " + session + "\ntoken " + token + "\nepoch 7\ndeadline_ns 1\n") ==
        "start record: no `device`");
  CHECK(error_of(good + "lonely\n") == "start record: a line without a value");
}

TEST_CASE("what concerns a device may stand before or after it") {
  const StartRecord record = parse_start_record("enforcer 1 /run/turns/" + uuid + "\nstrict 1\n" + good +
                                                "device 2 " + uuid + " 100 16\n");
  REQUIRE(record.devices.size() == 2);
  CHECK(record.devices[0].enforcer == "/run/turns/" + uuid);
  CHECK(record.devices[0].strict);
  CHECK(record.devices[1].enforcer.empty());
  CHECK_FALSE(record.devices[1].strict);
  for (const char* bad :
       {"enforcer x /a", "enforcer 1 a", "enforcer 1", "enforcer -1 /a", "enforcer 1 /a\nenforcer 1 /b"})
    CHECK(error_of(good + bad + "\n") == "start record: bad value for `enforcer`");
  for (const char* bad : {"strict x", "strict -1", "strict 1 2"})
    CHECK(error_of(good + bad + "\n") == "start record: bad value for `strict`");
}

TEST_CASE("who was started ahead waits until there is something to read, or nothing ever will be") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  SUBCASE("a record") {
    REQUIRE(::write(ends[1], "a", 1) == 1);
  }
  SUBCASE("the agent's end") {
    ::close(ends[1]);
    ends[1] = -1;
  }
  await_start_record(ends[0]);
  ::close(ends[0]);
  if (ends[1] >= 0) ::close(ends[1]);
}

TEST_CASE("binary and oversized records are refused") {
  CHECK(error_of(good + std::string("x \0\n", 4)) == "start record: not text");
  CHECK(error_of(good + "x " + std::string(max_start_record, 'y')) == "start record: longer than 64 KiB");
  std::string many = good;
  for (std::size_t i = 0; i < max_devices; ++i) many += "device 1 " + uuid + " 200 1638\n";
  CHECK(error_of(many) == "start record: bad value for `device`");
}

TEST_CASE("reading stops at the empty line, at the end, at the size and at the time limit") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  SUBCASE("empty line, writer stays open") {
    const std::string text = good + "\n";
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    CHECK(read_start_record(ends[0], 1000) == good);
  }
  SUBCASE("nothing comes") {
    CHECK_THROWS_AS((void)read_start_record(ends[0], 30), std::runtime_error);
  }
  SUBCASE("writer closes") {
    REQUIRE(::write(ends[1], "a b\n", 4) == 4);
    ::close(ends[1]);
    ends[1] = -1;
    CHECK(read_start_record(ends[0], 1000) == "a b\n");
  }
  ::close(ends[0]);
  if (ends[1] >= 0) ::close(ends[1]);
}
