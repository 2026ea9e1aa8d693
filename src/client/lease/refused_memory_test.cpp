#include "client/lease/refused_memory.h"

#include <unistd.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/process/log.h"
#include "shared_api/error_log.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr RefusedMemory three_gib{1, 3 * gib, 3 * gib / 2, 0, gib, 3 * gib};

std::string content(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

/// A folder with a session file's name in the environment.
class Session {
 public:
  Session() {
    std::string name = (std::filesystem::temp_directory_path() / "gpupool-refused-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    setenv("GPUPOOL_SESSION_FILE", (folder_ / "session").c_str(), 1);
  }
  ~Session() {
    unsetenv("GPUPOOL_SESSION_FILE");
    log_to({});
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::filesystem::path note() const { return folder_ / "session.out_of_memory"; }
  [[nodiscard]] std::filesystem::path log() const { return folder_ / "log"; }

 private:
  std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("bytes for people") {
  CHECK(amount(0) == "0 B");
  CHECK(amount(1023) == "1023 B");
  CHECK(amount(1536) == "1.5 KiB");
  CHECK(amount(640 << 20) == "640 MiB");
  CHECK(amount(3 * gib) == "3 GiB");
  CHECK(amount(~std::uint64_t{0}) == "16777216 TiB");
}

TEST_CASE("a refusal is on record with its figures, for the program, its log and the share's holder") {
  const Session session;
  log_to(session.log());
  RefusedMemoryRecord record;
  CHECK_FALSE(record.last());
  const std::uint32_t line = error_log().next();
  record.keep(three_gib);
  CHECK(record.last() == three_gib);
  CHECK(error_log().next() == line + 1);
  CHECK(std::string(last_message()) == three_gib.sentence());
  CHECK(content(session.note()) == three_gib.json() + "\n");
  CHECK(content(session.log()) == "gpupool: " + three_gib.sentence() + "\n");
  CHECK(
      three_gib.json() ==
      R"({"asked":3221225472,"share":1610612736,"used":0,"largest_free":1073741824,"needed":3221225472,"device":1})");
}

TEST_CASE("who asks again and again fills no log") {
  const Session session;
  log_to(session.log());
  RefusedMemoryRecord record;
  for (int n = 0; n < 1000; ++n) record.keep(three_gib);
  std::ifstream log(session.log());
  std::string line;
  int lines = 0;
  while (std::getline(log, line)) ++lines;
  CHECK(lines < 100);  // one a second
  CHECK(lines > 0);
}

TEST_CASE("what is to be had later clears the record, and nothing less does") {
  const Session session;
  RefusedMemoryRecord record;
  record.keep(three_gib);
  record.served(1, 3 * gib - 1);
  record.served(0, 4 * gib);
  CHECK(record.last());
  record.served(1, 3 * gib);
  CHECK_FALSE(record.last());
  CHECK_FALSE(std::filesystem::exists(session.note()));

  record.keep(three_gib);
  record.clear();
  CHECK_FALSE(record.last());
  CHECK_FALSE(std::filesystem::exists(session.note()));
}

TEST_CASE("a refusal is no matter where there is another way") {
  const Session session;
  RefusedMemoryRecord record;
  {
    const RefusalIsNoMatter here;
    record.keep(three_gib);
  }
  CHECK_FALSE(record.last());
  CHECK_FALSE(std::filesystem::exists(session.note()));
  record.keep(three_gib);
  CHECK(record.last());
}
