// What this process has sent, counted: the figures a user steers by.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "generated/message_ids.h"
#include "generated/wire/control.h"

namespace gpupool::client {

class Counters {
 public:
  void post(std::uint16_t) noexcept { posts_.fetch_add(1, std::memory_order_relaxed); }
  void ask(std::uint16_t message, std::uint64_t nanoseconds) noexcept;
  void sent(std::uint64_t bytes) noexcept { to_device_.fetch_add(bytes, std::memory_order_relaxed); }
  /// Messages so far, of all threads.
  [[nodiscard]] std::uint64_t calls() const noexcept { return posts_.load() + asks_.load(); }
  /// The program waited for a copy to the host: counted by size, because many small ones are a habit worth a
  /// hint.
  void waited_for_copy(std::uint64_t bytes) noexcept;
  void received(std::uint64_t bytes) noexcept { from_device_.fetch_add(bytes, std::memory_order_relaxed); }

  /// Module images and link inputs: sent with their bytes, or found in the node's cache by their digest.
  void image_sent(std::uint64_t bytes) noexcept {
    sent(bytes);
    images_sent_.fetch_add(1, std::memory_order_relaxed);
    image_bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void image_found(std::uint64_t bytes) noexcept {
    images_found_.fetch_add(1, std::memory_order_relaxed);
    image_bytes_found_.fetch_add(bytes, std::memory_order_relaxed);
  }
  /// Largest size of each class of copies to the host; the last class has no limit.
  static constexpr std::array<std::uint64_t, 3> copy_classes{16, 4096, 1 << 20};

  /// The members of the JSON object that are this process's own, without braces.
  [[nodiscard]] std::string json() const;

 private:
  struct PerMessage {
    std::atomic<std::uint64_t> count{0}, nanoseconds{0};
  };
  std::atomic<std::uint64_t> posts_{0}, asks_{0}, ask_ns_{0}, to_device_{0}, from_device_{0};
  std::atomic<std::uint64_t> images_sent_{0}, image_bytes_sent_{0}, images_found_{0}, image_bytes_found_{0};
  std::array<PerMessage, message_count> by_message_;
  std::array<std::atomic<std::uint64_t>, copy_classes.size() + 1> copies_to_host_{};
};

/// What the session's workers have counted, as a JSON object.
[[nodiscard]] std::string counted_json(const wire::StatsReply& counted);

}  // namespace gpupool::client
