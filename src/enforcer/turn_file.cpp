#include "enforcer/turn_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/futex.h"

namespace gpupool::enforcer {
namespace {

/// Changes with the layout: workers of different versions must not share a book.
constexpr std::uint64_t magic = 0x32306e7275546770;  // "pgTurn02"

struct FileContent {
  std::uint64_t magic;
  alignas(64) BookData book;
};

// Bytes that are locked: one to write, one for each place. They need not be in the file.
constexpr off_t writing_byte = 0;
constexpr off_t first_place_byte = 1;

bool lock_byte(int fd, int command, short type, off_t byte) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  while (::fcntl(fd, command, &lock) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

[[noreturn]] void failed(const std::string& path, const std::string& why) {
  throw std::runtime_error("the device's book of turns " + path + ": " + why);
}

}  // namespace

TurnFile::TurnFile(const std::string& path) {
  try {
    open(path);
    claim_place();
  } catch (...) {
    close();
    throw;
  }
}

TurnFile::~TurnFile() {
  close();
}

void TurnFile::open(const std::string& path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0) failed(path, std::strerror(errno));
  struct stat status{};
  if (::fstat(fd_, &status) != 0) failed(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) failed(path, "not a file of this user");
  const Lock lock(*this);
  if (::fstat(fd_, &status) != 0) failed(path, std::strerror(errno));
  const bool fresh = status.st_size == 0;
  if (fresh) {
    // A page that the disk has no room for would end the process with SIGBUS when it is written. Only of a
    // new book: where the file system cannot do it, bytes are written, which others may be writing.
    if (const int error = ::posix_fallocate(fd_, 0, sizeof(FileContent)); error != 0) {
      static_cast<void>(::ftruncate(fd_, 0));
      failed(path, std::strerror(error));
    }
  } else if (status.st_size != sizeof(FileContent)) {
    failed(path, "not a book of turns of this version");
  }
  memory_ = ::mmap(nullptr, sizeof(FileContent), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    failed(path, std::strerror(errno));
  }
  auto* const content = static_cast<FileContent*>(memory_);
  // Also of a file whose maker died before it had written this: all zero is a book.
  if (content->magic == 0) content->magic = magic;
  if (content->magic != magic) failed(path, "not a book of turns of this version");
  book_ = &content->book;
}

void TurnFile::claim_place() {
  const Lock lock(*this);
  for (std::size_t slot = 0; slot < most_sessions; ++slot) {
    const auto byte = first_place_byte + static_cast<off_t>(slot);
    if (!lock_byte(fd_, F_OFD_SETLK, F_WRLCK, byte)) continue;
    slot_ = slot;
    return;
  }
  throw std::runtime_error("the device's book of turns has no place left: it has " +
                           std::to_string(most_sessions) + " sessions");
}

void TurnFile::close() noexcept {
  if (memory_ != nullptr) ::munmap(memory_, sizeof(FileContent));
  if (fd_ >= 0) ::close(fd_);
}

bool TurnFile::alive(std::size_t slot) const {
  if (slot == slot_) return true;  // one's own locks are not told
  if (slot >= most_sessions) return false;
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first_place_byte + static_cast<off_t>(slot);
  lock.l_len = 1;
  return ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

TurnFile::Lock::Lock(const TurnFile& file) : file_(file) {
  static_cast<void>(lock_byte(file_.fd_, F_OFD_SETLKW, F_WRLCK, writing_byte));
}

TurnFile::Lock::~Lock() {
  static_cast<void>(lock_byte(file_.fd_, F_OFD_SETLK, F_UNLCK, writing_byte));
}

void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t timeout_ns) {
  wire::futex_wait(word, value, timeout_ns);
}

void wake(const std::atomic<std::uint32_t>& word) {
  wire::futex_wake(word);
}

}  // namespace gpupool::enforcer
