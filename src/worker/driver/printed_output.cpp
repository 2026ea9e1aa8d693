#include "worker/driver/printed_output.h"

#include <fcntl.h>
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
  const std::lock_guard lock(mutex_);
  std::fflush(stdout);
  struct stat status{};
  if (fstat(file_, &status) != 0 || status.st_size <= taken_) return {};
  const off_t fresh = status.st_size - taken_;
  std::string text(static_cast<std::size_t>(std::min(fresh, kept)), '\0');
  const ssize_t got = pread(file_, text.data(), text.size(), taken_);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  // The memory goes, the offset stays: another thread's kernels may be printing at this moment.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, taken_, fresh);
  taken_ = status.st_size;
  return text;
}

}  // namespace gpupool::worker
