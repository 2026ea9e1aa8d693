// The state of an event that several processes use (CU_EVENT_INTERPROCESS): a page of memory that all of them
// map.
//
// Every record has a number. A process that waits for the event waits for the number of the last record
// before the call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class SharedEvent {
 public:
  // Throws Error(OUT_OF_MEMORY).
  static std::shared_ptr<SharedEvent> make();
  // What `describe` of another process says. Throws Error(INVALID_CONTEXT) for one of this process,
  // Error(INVALID_HANDLE) for bytes that name none.
  static std::shared_ptr<SharedEvent> open(const CUipcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void describe(CUipcEventHandle& out) const;

  // A record that has been given to a stream. It is complete when this goes.
  class Record {
   public:
    Record(std::shared_ptr<SharedEvent> event, std::uint64_t number)
        : event_(std::move(event)), number_(number) {}
    ~Record() { event_->complete(number_); }
    Record(const Record&) = delete;
    Record& operator=(const Record&) = delete;

   private:
    std::shared_ptr<SharedEvent> event_;
    std::uint64_t number_;
  };
  static std::shared_ptr<Record> record(const std::shared_ptr<SharedEvent>& event);

  // Number of the last record of any process; 0 before the first.
  std::uint64_t last() const;
  // Whether a record is complete. So is one whose process has ended.
  bool done(std::uint64_t number) const;
  // False once `given_up` is true.
  bool wait(std::uint64_t number, const std::function<bool()>& given_up) const;

 private:
  struct Page;
  using Id = std::array<std::uint8_t, 16>;

  SharedEvent(int descriptor, Page* page) : descriptor_(descriptor), page_(page) {}
  void complete(std::uint64_t number);

  const int descriptor_;  // of the maker, for others to open; -1 in other processes
  Page* const page_;
};

}  // namespace softgpu::driver
