#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "softgpu/usage/busy_time.h"
#include "softgpu/usage/usage_folder.h"

using namespace softgpu::usage;

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t start = 1'000'000 * ms;

// Milliseconds of work between two times, both in milliseconds behind `start`.
std::int64_t worked(const CardUsage& card, std::int64_t from, std::int64_t to) {
  const auto history = read_history(card);
  REQUIRE(history.has_value());
  return busy_between(*history, start + from * ms, start + to * ms) / ms;
}

void run_kernel(CardUsage& card, std::int64_t from, std::int64_t to) {
  begin_busy(card, start + from * ms);
  end_busy(card, start + to * ms);
}

class TemporaryFolder {
 public:
  TemporaryFolder() { REQUIRE_NE(mkdtemp(path_), nullptr); }
  ~TemporaryFolder() { CHECK_EQ(std::system(("rm -r " + path()).c_str()), 0); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[64] = "/tmp/softgpu-usage-XXXXXX";
};

}  // namespace

TEST_CASE("a card on which nothing ran was not busy") {
  const CardUsage card;
  CHECK_EQ(worked(card, 0, 1000), 0);
}

TEST_CASE("one kernel counts as long as it runs, also while it is under way") {
  CardUsage card;
  begin_busy(card, start + 100 * ms);
  CHECK_EQ(worked(card, -400, 600), 500);
  CHECK_EQ(worked(card, 200, 300), 100);
  end_busy(card, start + 700 * ms);
  CHECK_EQ(worked(card, 0, 1000), 600);
  CHECK_EQ(worked(card, 200, 1200), 500);
}

TEST_CASE("what was long ago is no work of now") {
  CardUsage card;
  run_kernel(card, 0, 50);
  CHECK_EQ(worked(card, -500, 500), 50);
  CHECK_EQ(worked(card, 9000, 10000), 0);
  run_kernel(card, 10000, 10010);
  CHECK_EQ(worked(card, 9100, 10100), 10);
}

TEST_CASE("many short kernels: the second before now is known to a sample") {
  CardUsage card;
  // Half of the time for ten seconds, then a quarter of it for three.
  for (std::int64_t at = 0; at < 10000; at += 2) run_kernel(card, at, at + 1);
  CHECK_EQ(worked(card, 9000, 10000), doctest::Approx(500).epsilon(0.02));
  for (std::int64_t at = 10000; at < 13000; at += 4) run_kernel(card, at, at + 1);
  CHECK_EQ(worked(card, 12000, 13000), doctest::Approx(250).epsilon(0.02));
  CHECK_EQ(worked(card, 13000, 14000), 0);
}

TEST_CASE("a process's record is there for others while it lives") {
  const TemporaryFolder folder;
  const UsageFolder usage(folder.path() + "/of-user");
  CHECK(usage.read().empty());
  const auto mine = usage.create();
  REQUIRE(mine != nullptr);
  (*mine)->cards[1].memory = 4096;
  const auto found = usage.read();
  REQUIRE_EQ(found.size(), 1);
  CHECK_EQ(found[0].pid, static_cast<unsigned>(getpid()));
  CHECK_EQ((*found[0].record)->cards[1].memory, 4096);
  usage.remove_own();
  CHECK(usage.read().empty());
}

TEST_CASE("what a process that is gone has left is taken away") {
  const TemporaryFolder folder;
  const UsageFolder usage(folder.path());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(usage.create() != nullptr ? 0 : 1);
  int status = -1;
  REQUIRE_EQ(waitpid(child, &status, 0), child);
  REQUIRE_EQ(status, 0);
  const std::string left = folder.path() + '/' + std::to_string(child);
  CHECK_EQ(access(left.c_str(), F_OK), 0);
  CHECK(usage.read().empty());
  CHECK_NE(access(left.c_str(), F_OK), 0);
}

TEST_CASE("a folder that others may enter, or that is a link, is not used") {
  const TemporaryFolder folder;
  const std::string open_to_others = folder.path() + "/open";
  REQUIRE_EQ(mkdir(open_to_others.c_str(), 0700), 0);
  REQUIRE_EQ(chmod(open_to_others.c_str(), 0755), 0);
  CHECK(UsageFolder(open_to_others).create() == nullptr);
  const std::string target = folder.path() + "/target", link = folder.path() + "/link";
  REQUIRE_EQ(mkdir(target.c_str(), 0700), 0);
  REQUIRE_EQ(symlink(target.c_str(), link.c_str()), 0);
  CHECK(UsageFolder(link).create() == nullptr);
}

TEST_CASE("files that are no records are passed over") {
  const TemporaryFolder folder;
  const std::string own = folder.path() + '/' + std::to_string(getpid());
  for (const std::string& name : {folder.path() + "/notes", folder.path() + "/1x", own}) {
    const int file = open(name.c_str(), O_WRONLY | O_CREAT, 0600);
    REQUIRE(file >= 0);
    REQUIRE_EQ(write(file, "text", 4), 4);
    close(file);
  }
  CHECK(UsageFolder(folder.path()).read().empty());
}
