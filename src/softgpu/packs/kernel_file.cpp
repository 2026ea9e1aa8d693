#include "softgpu/packs/kernel_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

#if GPUPOOL_HAVE_ZSTD
#include <zstd.h>
#endif

namespace softgpu::packs {
namespace {

constexpr std::string_view first_line = "gpupool-kernels 1\n";
constexpr std::uint64_t longest_table = std::uint64_t{64} << 20;
constexpr std::uint64_t longest_text = std::uint64_t{256} << 20;
constexpr std::size_t step = std::size_t{64} << 10;

bool read_at(int file, std::uint64_t offset, std::string& into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        pread(file, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

// Takes a number and the blank behind it off the line.
bool take_number(std::string_view& line, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  const auto length = static_cast<std::size_t>(end - line.data());
  if (error != std::errc() || length >= line.size() || line[length] != ' ') return false;
  line.remove_prefix(length + 1);
  return true;
}

std::string decompress([[maybe_unused]] const std::string& from, [[maybe_unused]] std::uint64_t plain_size) {
#if GPUPOOL_HAVE_ZSTD
  std::string text(plain_size, '\0');
  const std::size_t written = ZSTD_decompress(text.data(), text.size(), from.data(), from.size());
  if (!ZSTD_isError(written) && written == text.size()) return text;
#endif
  return {};
}

}  // namespace

std::shared_ptr<const KernelFile> KernelFile::open(const std::string& path, std::string& problem) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    problem = std::strerror(errno);
    return nullptr;
  }
  std::shared_ptr<KernelFile> made(new KernelFile(path, file));
  return made->read_table(problem) ? made : nullptr;
}

KernelFile::~KernelFile() {
  close(file_);
}

bool KernelFile::read_table(std::string& problem) {
  struct stat state{};
  if (fstat(file_, &state) != 0 || !S_ISREG(state.st_mode)) {
    problem = "it is not a file";
    return false;
  }
  const auto size = static_cast<std::uint64_t>(state.st_size);
  problem = "it is damaged";
  std::string head;
  std::size_t end = std::string::npos;
  while (end == std::string::npos) {
    const auto more = std::min<std::uint64_t>(step, size - head.size());
    if (more == 0 || head.size() > longest_table) return false;
    std::string piece(more, '\0');
    if (!read_at(file_, head.size(), piece)) return false;
    const std::size_t from = head.empty() ? 0 : head.size() - 1;
    head += piece;
    end = head.find("\n\n", from);
  }
  if (!head.starts_with(first_line)) return false;
  frames_at_ = end + 2;
  std::string_view lines(head.data() + first_line.size(), end + 1 - std::min(end + 1, first_line.size()));
  while (!lines.empty()) {
    const std::size_t length = lines.find('\n');
    if (!add(lines.substr(0, length), size - frames_at_)) return false;
    lines.remove_prefix(length + 1);
  }
  problem.clear();
  return true;
}

bool KernelFile::add(std::string_view line, std::uint64_t bytes) {
  Frame frame;
  if (!take_number(line, frame.offset) || !take_number(line, frame.size) ||
      !take_number(line, frame.plain_size))
    return false;
  if (line.empty() || frame.offset > bytes || frame.size > bytes - frame.offset || frame.plain_size == 0 ||
      frame.plain_size > longest_text)
    return false;
  // Names of one frame stand together.
  if (frames_.empty() || frames_.back() != frame) frames_.push_back(frame);
  names_.push_back({std::string(line), frames_.size() - 1});
  return true;
}

std::string KernelFile::ptx(std::size_t frame) const {
  const Frame& wanted = frames_[frame];
  std::string compressed(wanted.size, '\0');
  if (!read_at(file_, frames_at_ + wanted.offset, compressed)) return {};
  return decompress(compressed, wanted.plain_size);
}

}  // namespace softgpu::packs
