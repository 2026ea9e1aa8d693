#include "softgpu/usage/usage_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/process_mark.h"
#include "base/text_fields.h"

namespace softgpu::usage {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

// Tells the processes of one container from those of another; 0 when it cannot be told.
std::uint64_t process_namespace() {
  struct stat facts{};
  return stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

std::string name_of(unsigned pid) {
  return std::to_string(pid) + '.' + std::to_string(process_namespace());
}

// The process that a file is of; nothing when this process cannot see it, or it is no record.
std::optional<unsigned> process_of(std::string_view name) {
  const auto pid = gpupool::parse_number<unsigned>(gpupool::next_field(name, '.'));
  return gpupool::parse_number<std::uint64_t>(name) == process_namespace() ? pid : std::nullopt;
}

// Null unless the file is as large as a record.
std::unique_ptr<MappedRecord> map(int file, int protection) {
  struct stat facts{};
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != off_t{sizeof(Record)})
    return nullptr;
  void* const at = mmap(nullptr, sizeof(Record), protection, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  return std::make_unique<MappedRecord>(static_cast<Record*>(at));
}

}  // namespace

MappedRecord::~MappedRecord() {
  munmap(record_, sizeof(Record));
}

UsageFolder::UsageFolder() : path_("/dev/shm/gpupool-softgpu-" + std::to_string(geteuid())) {}

int UsageFolder::open_private() const {
  const int folder = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  struct stat facts{};
  if (fstat(folder, &facts) == 0 && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0) return folder;
  close(folder);
  return -1;
}

std::unique_ptr<MappedRecord> UsageFolder::create() const {
  static_cast<void>(read());  // removes what others have left
  static_cast<void>(mkdir(path_.c_str(), 0700));
  const Descriptor folder(open_private());
  const auto pid = static_cast<unsigned>(getpid());
  const auto ticks = gpupool::process_mark::start_ticks(pid);
  if (folder.get() < 0 || !ticks) return nullptr;
  const std::string name = name_of(pid);
  unlinkat(folder.get(), name.c_str(), 0);  // of an earlier process of this number
  const Descriptor file(
      openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0 || posix_fallocate(file.get(), 0, sizeof(Record)) != 0) return nullptr;
  auto record = map(file.get(), PROT_READ | PROT_WRITE);
  if (record == nullptr) return nullptr;
  (*record)->start_ticks = *ticks;
  (*record)->magic.store(record_magic, std::memory_order_release);
  return record;
}

void UsageFolder::remove_own() const {
  unlink((path_ + '/' + name_of(static_cast<unsigned>(getpid()))).c_str());
}

std::vector<ProcessRecord> UsageFolder::read() const {
  std::vector<ProcessRecord> found;
  const int folder = open_private();
  if (folder < 0) return found;
  DIR* const listing = fdopendir(folder);
  if (listing == nullptr) {
    close(folder);
    return found;
  }
  while (const dirent* const entry = ::readdir(listing)) {
    const auto pid = process_of(entry->d_name);
    if (!pid) continue;
    const auto ticks = gpupool::process_mark::start_ticks(*pid);
    const Descriptor file(openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file.get() < 0) continue;
    auto record = map(file.get(), PROT_READ);
    const bool written =
        record != nullptr && (*record)->magic.load(std::memory_order_acquire) == record_magic;
    if (written && ticks && (*record)->start_ticks == *ticks) {
      found.push_back({*pid, std::move(record)});
    } else if (!ticks || written) {
      unlinkat(folder, entry->d_name, 0);
    }
  }
  closedir(listing);
  return found;
}

}  // namespace softgpu::usage
