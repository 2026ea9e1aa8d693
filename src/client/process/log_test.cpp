#include "client/process/log.h"

#include <unistd.h>

#include <doctest/doctest.h>

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
