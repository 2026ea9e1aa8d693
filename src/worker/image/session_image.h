// A session written out: what a worker has to do and to know to go on with it in the place of another one.
//
// The manifest. Bytes (device memory, module images) are not in it: they lie in chunks beside it, which it
// names by their SHA-256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "wire/bytes.h"

namespace gpupool::worker {

/// Plain data. Written by one worker, read by another one, which trusts nothing in it.
struct SessionImage {
  static constexpr std::uint32_t magic = 0x4d495047;  // "GPIM"
  static constexpr std::uint32_t version = 2;
  /// A granule of device memory: what was never written to is left out, and equal pieces are kept once.
  static constexpr std::uint32_t chunk_bytes = 2u << 20;
  static constexpr std::uint32_t zeros = 0xffffffff;  ///< in place of a chunk's number
  static constexpr std::uint64_t largest_manifest = std::uint64_t{1} << 30;

  struct Chunk {
    Digest digest{};
    std::uint32_t size = 0;
    std::uint64_t place = 0;  ///< in the file of the chunks
  };
  /// Pieces of chunk_bytes and a rest, each by the number of its chunk.
  struct Bytes {
    std::uint64_t size = 0;
    std::vector<std::uint32_t> chunks;
  };
  struct Device {
    std::string name;
    std::int32_t major = 0, minor = 0;  ///< compute capability
    std::uint64_t arena = 0, granularity = 0;
  };
  struct Memory {
    std::uint64_t handle = 0;  ///< the client's; 0: it has none
    std::int32_t device = 0;
    std::uint64_t size = 0;
    std::uint8_t compression = 0, rdma = 0;
    Bytes bytes;
  };
  struct Mapping {
    std::int32_t place = 0;  ///< whose arena
    std::uint64_t address = 0, size = 0, offset = 0;
    std::uint32_t memory = 0;  ///< number in `memory`
    std::uint32_t access = 0;
  };
  /// See session_journal.h.
  struct Call {
    std::uint16_t message = 0;
    std::uint32_t lane = 0;
    std::uint64_t context = 0;
    std::vector<std::byte> body;
    std::optional<Bytes> content;      ///< the module image that is loaded
    std::vector<std::string> kernels;  ///< of it, in the client's order
  };
  /// Of a loaded module or library.
  struct Variable {
    std::uint64_t image = 0;
    std::uint64_t context = 0;  ///< of a library, which has one of each variable in each context
    std::string name;
    Bytes bytes;
  };

  std::uint32_t fingerprint = 0;  ///< of the protocol table, whose messages are in `calls`
  std::array<std::uint8_t, 16> session{};
  std::uint32_t epoch = 0;   ///< the last one known
  std::uint64_t client = 0;  ///< the process that the objects belong to; 0: none has come yet
  std::array<std::uint64_t, 7> usage{};
  std::vector<Device> devices;
  std::vector<Memory> memory;
  std::vector<Mapping> mappings;
  std::vector<Call> calls;
  std::vector<Variable> variables;
  Bytes link;  ///< the conversation with the client: an encoded LinkState
  std::vector<Chunk> chunks;

  /// With a digest of all at its end.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Nothing for what encode() does not write, with the reason in `why`. Takes a few times the memory of
  /// `bytes`, whatever stands in them.
  [[nodiscard]] static std::optional<SessionImage> decode(std::span<const std::byte> bytes, std::string& why);

  /// Every piece of bytes in the image.
  template <class F>
  void each_bytes(F use) const {
    for (const Memory& one : memory) use(one.bytes);
    for (const Call& call : calls) {
      if (call.content) use(*call.content);
    }
    for (const Variable& variable : variables) use(variable.bytes);
    use(link);
  }
};

}  // namespace gpupool::worker
