// The file in which the workers of one device keep its book of turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "enforcer/turn_book.h"

namespace gpupool::enforcer {

/// The kernel's locks on the open file say who lives and who writes, and it takes them from a process that
/// dies: nothing that is written in the file has to be believed for that.
class TurnFile {
 public:
  /// Maps the file, which must be there, be a regular one and belong to this user; an empty one becomes a
  /// book. Takes a place in it. Throws std::runtime_error with one clear sentence.
  explicit TurnFile(const std::string& path);
  ~TurnFile();
  TurnFile(const TurnFile&) = delete;
  TurnFile& operator=(const TurnFile&) = delete;

  [[nodiscard]] BookData& book() const { return *book_; }
  [[nodiscard]] std::size_t slot() const { return slot_; }
  /// Whether the process that took this place is there.
  [[nodiscard]] bool alive(std::size_t slot) const;

  /// Excludes other processes, not other threads of this one.
  class Lock {
   public:
    explicit Lock(const TurnFile& file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const TurnFile& file_;
  };

 private:
  void open(const std::string& path);
  void claim_place();
  void close() noexcept;

  int fd_ = -1;
  void* memory_ = nullptr;
  BookData* book_ = nullptr;
  std::size_t slot_ = 0;
};

/// Sleeps while the word is `value`, for at most `timeout_ns`.
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t timeout_ns);
/// Wakes everybody who sleeps on the word.
void wake(const std::atomic<std::uint32_t>& word);

}  // namespace gpupool::enforcer
