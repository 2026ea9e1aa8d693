#include "client/process/log.h"

#include <unistd.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

using namespace gpupool::client;

namespace {

std::string content(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("a refusal that its caller tells is not written by the runtime too") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("gpupool-log-" + std::to_string(getpid()));
  log_to(file);
  {
    const CallerTellsRefusals drained;
    tell_refusal("told by the caller");
    std::thread([] { tell_refusal("of another thread"); }).join();
  }
  tell_refusal("of a later call");
  CHECK(content(file) == "gpupool: of another thread\ngpupool: of a later call\n");
  log_to({});
  std::filesystem::remove(file);
}

TEST_CASE("a refusal that the user has been told is told again only by a process that does so itself") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("gpupool-told-" + std::to_string(getpid()));
  log_to(file);
  tell_refusal("read already", true);
  tell_refusal("new");
  setenv("GPUPOOL_REFUSALS_TOLD_BY", std::to_string(getpid()).c_str(), 1);
  tell_refusal("for its cell", true);
  std::thread([] { tell_refusal("of its other thread", true); }).join();
  CHECK(std::string(take_refusal()) == "for its cell");
  unsetenv("GPUPOOL_REFUSALS_TOLD_BY");
  CHECK(content(file) == "gpupool: new\ngpupool: of its other thread\n");
  log_to({});
  std::filesystem::remove(file);
}
