// The session file of a session with several workers.
#include "client/lease/session_file.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace gpupool::client;

namespace {

const std::string first =
    "version 1\nstate attached\nsession 000102030405060708090a0b0c0d0e0f\ngeneration 3\nepoch 7\n"
    "address 127.0.0.1:40123\n"
    "token 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f\n";

std::string worker(const std::string& number) {
  return "session." + number + " 10111213141516171819101112131415\nepoch." + number + " 9\naddress." +
         number + " 127.0.0.1:40200\ntoken." + number +
         " ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n";
}

std::optional<SessionFile> parse(const std::string& text) {
  std::string error;
  auto file = parse_session_file(text, error);
  CHECK(file.has_value() == error.empty());
  return file;
}

}  // namespace

TEST_CASE("a session file names further workers and how many devices each has") {
  const auto file = parse(first + worker("1") + worker("2") + "devices 1,2,1\n");
  REQUIRE(file);
  CHECK(file->workers() == 3);
  CHECK(file->devices == std::vector<unsigned>{1, 2, 1});
  const SessionFile second = file->of_worker(1);
  CHECK(second.session[0] == 0x10);
  CHECK(second.epoch == 9);
  CHECK(second.address == "127.0.0.1:40200");
  CHECK(second.token[0] == 0xff);
  CHECK(second.workers() == 1);
  CHECK(second.devices == std::vector<unsigned>{2});
  CHECK(file->of_worker(0).epoch == 7);
  CHECK(file->of_worker(0).devices == std::vector<unsigned>{1});
  CHECK(file->of_worker(3).session == std::array<std::uint8_t, 16>{});
}

TEST_CASE("without further workers the file is what it was; the keys may come in any order") {
  const auto plain = parse(first);
  REQUIRE(plain);
  CHECK(plain->workers() == 1);
  CHECK(plain->devices.empty());
  REQUIRE(parse(first + "devices 2\n"));
  const auto mixed = parse("devices 1,1\n" + worker("1") + first);
  REQUIRE(mixed);
  CHECK(mixed->of_worker(1).epoch == 9);
}

TEST_CASE("a further worker is described as a whole, numbered without a gap, and said once") {
  for (const std::string& bad : {
           first + worker("1"),                                                  // no device counts
           first + worker("2") + "devices 1,1\n",                                // no first one
           first + worker("1") + worker("3") + "devices 1,1,1\n",                // a gap
           first + worker("1") + worker("1") + "devices 1,1\n",                  // twice
           first + worker("1") + "devices 1,1,1\n",                              // more counts than workers
           first + worker("1") + "devices 2\n",                                  // fewer
           first + "session.1 10111213141516171819101112131415\ndevices 1,1\n",  // no token
           first + worker("0") + "devices 1,1\n",
           first + worker("01") + "devices 1,1\n",
           first + worker("16") + "devices 1,1\n",
           first + worker("-1") + "devices 1,1\n",
           first + worker("1x") + "devices 1,1\n",
           first + worker("") + "devices 1,1\n",
           first + worker("99999999999999999999") + "devices 1,1\n",
       }) {
    CAPTURE(bad);
    CHECK_FALSE(parse(bad));
  }
}

TEST_CASE("device counts are numbers above 0, 64 in all at most") {
  for (const char* const bad : {"", "0", "1,0", "1,", ",1", "a", "1,1x", "65", "63,2", "-1", "1 1",
                                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "4294967297"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse(first + "devices " + bad + "\n"));
  }
  std::string all = first;
  for (int n = 1; n < 16; ++n) all += worker(std::to_string(n));
  const auto most = parse(all + "devices 4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4\n");
  REQUIRE(most);
  CHECK(most->workers() == 16);
}

TEST_CASE("of a parked session the file need not say where its workers are") {
  const std::string parked =
      "version 1\nstate parked\nsession 000102030405060708090a0b0c0d0e0f\ngeneration 4\n";
  REQUIRE(parse(parked));
  REQUIRE(parse(parked + "devices 1,1\n"));
  REQUIRE(parse(parked + "session.1 10111213141516171819101112131415\ndevices 1,1\n"));
}

TEST_CASE("damaged text is refused or read, never misread: what is read obeys the rules") {
  const std::string good = first + worker("1") + worker("2") + "devices 1,1,1\n";
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (unsigned n = random() % 4 + 1; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, random() % 40 + 1);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        default:
          text[at] = "0123456789.,\n "[random() % 14];
      }
      if (text.empty()) break;
    }
    std::string error;
    const auto file = parse_session_file(text, error);
    if (!file) {
      CHECK_FALSE(error.empty());
      CHECK(error.find("ffeeddcc") == std::string::npos);
      continue;
    }
    if (file->state != FileState::attached) continue;
    unsigned devices = 0;
    for (const unsigned count : file->devices) devices += count;
    CHECK(devices <= SessionFile::max_devices);
    CHECK(file->workers() <= SessionFile::max_workers);
    CHECK((file->devices.empty() ? file->workers() == 1 : file->devices.size() == file->workers()));
    for (std::size_t n = 0; n < file->workers(); ++n) {
      CHECK(file->of_worker(n).epoch != 0);
      CHECK_FALSE(file->of_worker(n).address.empty());
    }
  }
}

TEST_CASE("a holder says that it asks again, and that it has") {
  const auto resumes = parse(first + "resumes 1\n");
  REQUIRE(resumes);
  CHECK(resumes->resumes);
  const auto answered = parse(first + "answered 3\n");
  REQUIRE(answered);
  CHECK(answered->answered == 3);
  CHECK_FALSE(parse(first + "answered soon\n"));
  CHECK_FALSE(parse(first)->resumes);
  const auto waiting = parse("version 1\nstate waiting\ngeneration 4\nmessage place 1\n");
  REQUIRE(waiting);
  CHECK(waiting->state == FileState::waiting);
  CHECK_FALSE(waiting->told);
  const auto told = parse("version 1\nstate closed\ngeneration 5\nmessage it was released\ntold 1\n");
  REQUIRE(told);
  CHECK(told->told);
}
