#include "worker/image/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace gpupool::worker {
namespace {

constexpr const char* manifest_name = "manifest";
constexpr const char* unfinished_name = "manifest.new";
constexpr const char* chunks_name = "chunks";

[[noreturn]] void no_folder(const std::string& path, const std::string& why) {
  throw std::runtime_error("session image " + path + ": " + why);
}
[[noreturn]] void no_folder(const std::string& path) {
  no_folder(path, std::strerror(errno));
}

wire::Socket open_in(const wire::Socket& folder, const char* name, int flags) {
  return wire::Socket(::openat(folder.fd(), name, flags | O_CLOEXEC | O_NOFOLLOW, 0600));
}

void write_all(const std::string& path, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) no_folder(path);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

bool read_all(int fd, std::span<std::byte> into, std::uint64_t place) {
  while (!into.empty()) {
    const ssize_t done = ::pread(fd, into.data(), into.size(), static_cast<off_t>(place));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(done));
    place += static_cast<std::uint64_t>(done);
  }
  return true;
}

}  // namespace

ImageFolderWriter::ImageFolderWriter(const std::string& folder) : path_(folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) no_folder(path_);
  folder_ = wire::Socket(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) no_folder(path_);
  if (::faccessat(folder_.fd(), manifest_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    no_folder(path_, "the folder holds an image already");
  }
  chunks_ = open_in(folder_, chunks_name, O_WRONLY | O_CREAT | O_TRUNC);
  if (!chunks_) no_folder(path_);
}

ImageFolderWriter::~ImageFolderWriter() {
  if (finished_ || !folder_) return;
  // There was none before, so a manifest that is there now is this one's, and it may not be on the disk.
  for (const char* const name : {manifest_name, unfinished_name, chunks_name}) {
    ::unlinkat(folder_.fd(), name, 0);
  }
}

void ImageFolderWriter::append(std::span<const std::byte> chunk) {
  write_all(path_, chunks_.fd(), chunk);
  // The disk begins now, while the next digests are made, and not in fsync.
  ::sync_file_range(chunks_.fd(), static_cast<off_t>(written_), static_cast<off_t>(chunk.size()),
                    SYNC_FILE_RANGE_WRITE);
  written_ += chunk.size();
}

void ImageFolderWriter::finish(std::span<const std::byte> manifest) {
  if (::fsync(chunks_.fd()) != 0) no_folder(path_);
  const wire::Socket file = open_in(folder_, unfinished_name, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) no_folder(path_);
  write_all(path_, file.fd(), manifest);
  // The folder itself may be new: its name is in the one above.
  const wire::Socket above(::openat(folder_.fd(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::fsync(file.fd()) != 0 ||
      ::renameat(folder_.fd(), unfinished_name, folder_.fd(), manifest_name) != 0 ||
      ::fsync(folder_.fd()) != 0 || !above || ::fsync(above.fd()) != 0) {
    no_folder(path_);
  }
  finished_ = true;
}

ImageFolder::ImageFolder(const std::string& folder) : path_(folder) {
  const wire::Socket place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!place) no_folder(path_);
  const wire::Socket manifest = open_in(place, manifest_name, O_RDONLY);
  chunks_ = open_in(place, chunks_name, O_RDONLY);
  struct stat status{};
  if (!manifest || !chunks_ || ::fstat(manifest.fd(), &status) != 0) no_folder(path_);
  if (!S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) > SessionImage::largest_manifest) {
    no_folder(path_, "it is no manifest of a session");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  if (!read_all(manifest.fd(), bytes, 0)) no_folder(path_, "the manifest cannot be read");
  std::string why;
  auto image = SessionImage::decode(bytes, why);
  if (!image) no_folder(path_, why);
  image_ = std::move(*image);
}

void ImageFolder::announce(const std::vector<std::uint32_t>&) {
  ::posix_fadvise(chunks_.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

void ImageFolder::read(const SessionImage::Chunk& chunk, std::uint32_t number, std::span<std::byte> into) {
  if (!read_all(chunks_.fd(), into, chunk.place)) {
    no_folder(path_, "chunk " + std::to_string(number) + " is missing");
  }
}

}  // namespace gpupool::worker
