#include "worker/printed_output.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gpupool::worker {
namespace {
constexpr off_t kept = 1 << 20;  // CUDA's own printf buffer holds 1 MiB and drops the rest
}

PrintedOutput::PrintedOutput() : file_(memfd_create("printed", MFD_CLOEXEC)) {
  if (file_ < 0) return;
  std::fflush(stdout);
  original_ = dup(STDOUT_FILENO);
  dup2(file_, STDOUT_FILENO);
}

PrintedOutput::~PrintedOutput() {
  if (file_ < 0) return;
  std::fflush(stdout);
  if (original_ >= 0) {
    dup2(original_, STDOUT_FILENO);
    close(original_);
  }
  close(file_);
}

std::string PrintedOutput::take() {
  if (file_ < 0) return {};
  std::fflush(stdout);
  struct stat status{};
  if (fstat(file_, &status) != 0 || status.st_size == 0) return {};
  std::string text(static_cast<std::size_t>(std::min(status.st_size, kept)), '\0');
  const ssize_t got = pread(file_, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  // The descriptor's offset is shared with file descriptor 1: both go back to the start.
  if (ftruncate(file_, 0) == 0) lseek(file_, 0, SEEK_SET);
  return text;
}

}  // namespace gpupool::worker
