#include "worker/objects/image_cache.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

using namespace gpupool;
using namespace gpupool::worker;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "gpupool-images-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::size_t images() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(path)) {
      count += entry.path().filename().string().size() == 64 ? 1 : 0;
    }
    return count;
  }
  fs::path path;
};

ImageCache::Limits limits(std::uint64_t bytes) {
  return {bytes, 16384, 0};
}

std::vector<std::byte> content(unsigned seed, std::size_t size = 8192) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& value : bytes) value = static_cast<std::byte>(random());
  return bytes;
}

bool holds(ImageCache& cache, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> found;
  if (!cache.load(sha256(bytes), bytes.size(), found)) return false;
  CHECK(found.back() == std::byte{0});
  found.pop_back();
  return found == bytes;
}

void age(const fs::path& file, int seconds) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

}  // namespace

TEST_CASE("what one worker stored another finds, and nothing else") {
  const Folder folder;
  ImageCache first(folder.path, limits(1 << 20));
  const auto bytes = content(1);
  CHECK_FALSE(holds(first, bytes));
  first.store(sha256(bytes), bytes);
  ImageCache second(folder.path, limits(1 << 20));
  CHECK(holds(second, bytes));
  CHECK_FALSE(holds(second, content(2)));
  std::vector<std::byte> found;
  CHECK_FALSE(second.load(sha256(bytes), bytes.size() - 1, found));
  CHECK_FALSE(second.load(sha256(bytes), std::uint64_t{1} << 60, found));
  CHECK(holds(second, bytes));
}

TEST_CASE("a file that does not fit its digest is a miss and is removed") {
  const Folder folder;
  ImageCache cache(folder.path, limits(1 << 20));
  const auto bytes = content(1);
  cache.store(sha256(bytes), bytes);
  const auto file = folder.path / cache_file_name(sha256(bytes));
  {
    std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
    damage.seekp(4000);
    damage.put(static_cast<char>(~static_cast<unsigned>(bytes[4000])));
  }
  CHECK_FALSE(holds(cache, bytes));
  CHECK_FALSE(fs::exists(file));
  cache.store(sha256(bytes), bytes);
  CHECK(holds(cache, bytes));
}

TEST_CASE("a cut-off file is a miss and is replaced by the next store") {
  const Folder folder;
  ImageCache cache(folder.path, limits(1 << 20));
  const auto bytes = content(1);
  cache.store(sha256(bytes), bytes);
  fs::resize_file(folder.path / cache_file_name(sha256(bytes)), 100);
  CHECK_FALSE(holds(cache, bytes));
  cache.store(sha256(bytes), bytes);
  CHECK(holds(cache, bytes));
}

TEST_CASE("a link or a pipe under an image's name is not followed") {
  const Folder folder;
  ImageCache cache(folder.path, limits(1 << 20));
  const auto bytes = content(1);
  const auto secret = folder.path / "elsewhere";
  std::ofstream(secret, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), 8192);
  const auto file = folder.path / cache_file_name(sha256(bytes));
  fs::create_symlink(secret, file);
  CHECK_FALSE(holds(cache, bytes));
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK_FALSE(holds(cache, bytes));
}

TEST_CASE("a folder that others may enter is not used") {
  const Folder folder;
  fs::permissions(folder.path, fs::perms::owner_all | fs::perms::group_read);
  ImageCache cache(folder.path, limits(1 << 20));
  CHECK_FALSE(cache.usable());
  const auto bytes = content(1);
  cache.store(sha256(bytes), bytes);
  CHECK(folder.images() == 0);
  CHECK_FALSE(ImageCache("/nonexistent/folder", limits(1 << 20)).usable());
  CHECK_FALSE(ImageCache("", limits(1 << 20)).usable());
  CHECK_FALSE(ImageCache(folder.path, limits(0)).usable());
}

TEST_CASE("when room is needed the least recently used goes first, and what is in use stays") {
  const Folder folder;
  ImageCache cache(folder.path, limits(10 * 8192));
  for (unsigned n = 0; n < 10; ++n) {
    const auto bytes = content(n);
    cache.store(sha256(bytes), bytes);
    age(folder.path / cache_file_name(sha256(bytes)), 1000 - static_cast<int>(n));
  }
  CHECK(holds(cache, content(0)));  // the oldest, used again
  for (unsigned n = 10; n < 14; ++n) {
    const auto bytes = content(n);
    cache.store(sha256(bytes), bytes);
  }
  CHECK(folder.images() <= 10);
  CHECK(holds(cache, content(0)));
  CHECK_FALSE(holds(cache, content(1)));
  CHECK(holds(cache, content(13)));
}

TEST_CASE("the number of files is bounded too, and an image of half the cache is not kept") {
  const Folder folder;
  ImageCache cache(folder.path, {1 << 20, 8, 0});
  for (unsigned n = 0; n < 40; ++n) {
    const auto bytes = content(n);
    cache.store(sha256(bytes), bytes);
  }
  CHECK(folder.images() <= 8);
  const auto large = content(99, (1 << 19) + 1);
  cache.store(sha256(large), large);
  CHECK_FALSE(holds(cache, large));
}

TEST_CASE("nothing is stored on a disk that is nearly full") {
  const Folder folder;
  ImageCache cache(folder.path, {1 << 20, 8, std::uint64_t{1} << 60});
  const auto bytes = content(1);
  cache.store(sha256(bytes), bytes);
  CHECK(folder.images() == 0);
}

TEST_CASE("what a dead worker left unfinished is removed when it is old") {
  const Folder folder;
  std::ofstream(folder.path / "new-1-0") << "x";
  std::ofstream(folder.path / "new-2-0") << "x";
  std::ofstream(folder.path / "keep.me") << "x";
  age(folder.path / "new-1-0", 3600);
  ImageCache cache(folder.path, limits(1 << 20));
  const auto bytes = content(1);
  cache.store(sha256(bytes), bytes);
  CHECK_FALSE(fs::exists(folder.path / "new-1-0"));
  CHECK(fs::exists(folder.path / "new-2-0"));
  CHECK(fs::exists(folder.path / "keep.me"));
}

TEST_CASE("eight processes that store, read and are killed leave only whole images") {
  const Folder folder;
  std::vector<pid_t> children;
  for (unsigned n = 0; n < 8; ++n) {
    const pid_t child = ::fork();
    if (child == 0) {
      ImageCache cache(folder.path, limits(40 * 8192));
      for (unsigned round = 0;; ++round) {
        const auto bytes = content((round * 7 + n) % 64);
        std::vector<std::byte> found;
        if (cache.load(sha256(bytes), bytes.size(), found)) {
          found.pop_back();
          if (found != bytes) ::_exit(1);
        }
        cache.store(sha256(bytes), bytes);
      }
    }
    children.push_back(child);
  }
  ::usleep(300'000);
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));  // an exit would be a wrong content
  }
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    if (entry.path().filename().string().size() != 64) continue;
    ++found;
    CHECK(entry.file_size() == 8192);
  }
  CHECK(found >= 1);
  CHECK(found <= 64);
}
