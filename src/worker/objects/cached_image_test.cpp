// Images by digest: what a client may have from the node's cache, and what it may do to it.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "protocol/image_cache_rules.h"
#include "worker/objects/image_cache.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

namespace {

struct CacheFolder {
  CacheFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gpupool-cached-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~CacheFolder() { std::filesystem::remove_all(path); }
  [[nodiscard]] bool holds(const Digest& digest) const {
    return std::filesystem::exists(path / worker::cache_file_name(digest));
  }
  std::filesystem::path path;
};

/// PTX of `size` bytes; the stand-in driver refuses an odd length.
std::string ptx(std::size_t size) {
  std::string text = ".version 8.0\n";
  text.resize(size, ' ');
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Outcome {
  int result;
  CacheAnswer answer;
};

Outcome load_by_digest(SessionTestClient& client, std::span<const std::byte> digest, std::uint64_t size) {
  static std::uint32_t index = 100;
  messages::LoadCachedImage load;
  load.image = SessionTestClient::handle(wire::Kind::module, ++index);
  load.size = size;
  load.digest = digest;
  const auto answer = client.ask(load);
  replies::LoadCachedImage reply;
  wire::Reader in(answer.fields);
  if (answer.header.result == CUDA_SUCCESS) REQUIRE(replies::LoadCachedImage::decode(in, reply));
  return {answer.header.result, static_cast<CacheAnswer>(reply.answer)};
}

int load_with_bytes(SessionTestClient& client, const std::string& image) {
  static std::uint32_t index = 10'000;
  messages::LoadImage load;
  load.image = SessionTestClient::handle(wire::Kind::module, ++index);
  return client.ask(load, bytes_of(image)).header.result;
}

}  // namespace

TEST_CASE("without a cache a digest is answered with the word that asking again is of no use") {
  SessionTestClient client;
  const std::string image = ptx(8192);
  const Outcome outcome = load_by_digest(client, sha256(bytes_of(image)), image.size());
  CHECK(outcome.result == CUDA_SUCCESS);
  CHECK(outcome.answer == CacheAnswer::no_cache);
}

TEST_CASE("an image that was sent once is loaded by its digest, also in another session") {
  const CacheFolder folder;
  const std::string image = ptx(8192);
  const Digest digest = sha256(bytes_of(image));
  {
    SessionTestClient client(64u << 20, folder.path);
    CHECK(load_by_digest(client, digest, image.size()).answer == CacheAnswer::missing);
    CHECK(load_with_bytes(client, image) == CUDA_SUCCESS);
    CHECK(folder.holds(digest));
    CHECK(load_by_digest(client, digest, image.size()).answer == CacheAnswer::found);
  }
  SessionTestClient later(64u << 20, folder.path);
  const Outcome outcome = load_by_digest(later, digest, image.size());
  CHECK(outcome.result == CUDA_SUCCESS);
  CHECK(outcome.answer == CacheAnswer::found);
}

TEST_CASE("a link input that was sent once is added by its digest") {
  const CacheFolder folder;
  SessionTestClient client(64u << 20, folder.path);
  const std::string image = ptx(8192);
  const Digest digest = sha256(bytes_of(image));
  messages::LinkCreate create;
  create.link = SessionTestClient::handle(wire::Kind::link, 1);
  client.post(create);
  messages::LinkAddCached by_digest;
  by_digest.link = create.link;
  by_digest.type = CU_JIT_INPUT_PTX;
  by_digest.size = image.size();
  by_digest.digest = digest;
  const auto answer_of = [&] {
    const auto answer = client.ask(by_digest);
    replies::LinkAddCached reply;
    wire::Reader in(answer.fields);
    REQUIRE(answer.header.result == CUDA_SUCCESS);
    REQUIRE(replies::LinkAddCached::decode(in, reply));
    return static_cast<CacheAnswer>(reply.answer);
  };
  CHECK(answer_of() == CacheAnswer::missing);
  messages::LinkAdd add;
  add.link = create.link;
  add.type = CU_JIT_INPUT_PTX;
  CHECK(client.ask(add, bytes_of(image)).header.result == CUDA_SUCCESS);
  CHECK(answer_of() == CacheAnswer::found);
}

TEST_CASE("what the driver refuses is not kept, and small images are not") {
  const CacheFolder folder;
  SessionTestClient client(64u << 20, folder.path);
  const std::string refused = ptx(8191), outside = std::string(8192, '\0'), small = ptx(1024);
  CHECK(load_with_bytes(client, refused) == CUDA_ERROR_INVALID_IMAGE);
  CHECK_FALSE(folder.holds(sha256(bytes_of(refused))));
  CHECK(load_with_bytes(client, outside) == CUDA_ERROR_INVALID_IMAGE);
  CHECK_FALSE(folder.holds(sha256(bytes_of(outside))));
  CHECK(load_with_bytes(client, small) == CUDA_SUCCESS);
  CHECK_FALSE(folder.holds(sha256(bytes_of(small))));
}

TEST_CASE("a digest of another length and a size that no image has are refused") {
  const CacheFolder folder;
  SessionTestClient client(64u << 20, folder.path);
  const Digest digest{};
  CHECK(load_by_digest(client, std::span(digest).first(31), 8192).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(load_by_digest(client, {}, 8192).result == CUDA_ERROR_INVALID_VALUE);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{1} << 40}) {
    CHECK(load_by_digest(client, digest, size).result == CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_CASE("a file put into the cache by hand is checked as an image that was sent") {
  const CacheFolder folder;
  SessionTestClient client(64u << 20, folder.path);
  const std::string wrapper = std::string("\xb1\x43\x62\x46\x01\0\0\0@AAAAAAA", 16) + std::string(8176, '\0');
  const Digest digest = sha256(bytes_of(wrapper));
  worker::ImageCache(folder.path, {1 << 20, 64, 0}).store(digest, bytes_of(wrapper));
  REQUIRE(folder.holds(digest));
  CHECK(load_by_digest(client, digest, wrapper.size()).result == CUDA_ERROR_INVALID_IMAGE);
}
