#include "worker/driver/printed_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gpupool::worker {

PrintedOutput::~PrintedOutput() {
  if (file_ < 0) return;
  std::fflush(stdout);
  if (original_ >= 0) {
    dup2(original_, STDOUT_FILENO);
    close(original_);
  }
  close(file_);
}

void PrintedOutput::begin() {
  const std::lock_guard lock(mutex_);
  if (file_ >= 0) return;
  file_ = memfd_create("printed", MFD_CLOEXEC);
  if (file_ < 0) return;
  std::fflush(stdout);
  original_ = dup(STDOUT_FILENO);
  dup2(file_, STDOUT_FILENO);
}

std::string PrintedOutput::take() {
  const std::lock_guard lock(mutex_);
  std::string text = missing();
  dropped_ = 0;
  const std::string printed = read(std::min(untaken(), most_at_once));
  let_go(printed.size());
  return text + printed;
}

std::string PrintedOutput::rest() {
  const std::lock_guard lock(mutex_);
  keep_newest(most_kept);
  return missing() + read(untaken());
}

void PrintedOutput::trim() {
  const std::lock_guard lock(mutex_);
  keep_newest(most_kept);
}

void PrintedOutput::clear() {
  const std::lock_guard lock(mutex_);
  keep_newest(0);
  dropped_ = 0;
}

std::size_t PrintedOutput::untaken() const {
  struct stat status{};
  if (file_ < 0 || std::fflush(stdout) != 0 || fstat(file_, &status) != 0) return 0;
  return static_cast<std::size_t>(std::max<off_t>(status.st_size - taken_, 0));
}

std::string PrintedOutput::read(std::size_t size) const {
  std::string text(size, '\0');
  const ssize_t got = size > 0 ? pread(file_, text.data(), size, taken_) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

/// The memory goes, the offset stays: another thread's kernels may be printing at this moment.
void PrintedOutput::let_go(std::size_t size) {
  if (size == 0) return;
  static const off_t page = sysconf(_SC_PAGESIZE);
  const off_t from = taken_ - taken_ % page;  // only whole pages go, and this one may have been read in parts
  taken_ += static_cast<off_t>(size);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, taken_ - from);
}

void PrintedOutput::keep_newest(std::size_t size) {
  const std::size_t all = untaken();
  if (all <= size) return;
  let_go(all - size);
  dropped_ += all - size;
}

std::string PrintedOutput::missing() const {
  if (dropped_ == 0) return {};
  return "\n[gpupool: " + std::to_string(dropped_) + " bytes that kernels printed are missing here]\n";
}

}  // namespace gpupool::worker
