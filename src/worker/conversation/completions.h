// Tells the client, unasked, what the device has finished: streams and events that it watches, and copies to
// its memory with their bytes.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "generated/wire/control.h"
#include "worker/conversation/copy_slots.h"
#include "worker/conversation/outlet.h"
#include "worker/driver/driver.h"
#include "worker/residence/residence.h"

namespace gpupool::worker {

/// The first failure of a post that the client has not been told of.
struct Deferred {
  CUresult error = CUDA_SUCCESS;
  std::uint16_t message = 0;
};

/// A thread of its own asks the driver while there is something to ask. Its promise to the client: when it
/// reads that something has completed, by a push or by a reply, the bytes of every copy that had completed
/// before have been read already. That is why watches are asked about before copies, and copies are sent
/// first; and why a reply is preceded by deliver().
class Completions {
 public:
  /// `executed` is the number of the last frame whose execution has ended.
  Completions(const DriverApi& api, Outlet& outlet, const std::atomic<std::uint64_t>& executed,
              std::function<Deferred()> take_deferred, Residence* residence = nullptr,
              std::function<void()> nudged = {})
      : api_(api),
        outlet_(outlet),
        executed_(executed),
        take_deferred_(std::move(take_deferred)),
        residence_(residence),
        on_nudge_(std::move(nudged)) {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  /// A conversation begins; copies are staged in memory of `home`.
  /// `send_prints` sends what kernels have printed.
  void open(CUcontext home, std::function<void()> send_prints);
  /// The conversation has ended: nothing more is sent. Memory that copies still write to stays theirs
  /// until they have ended.
  void close();
  /// There is something to say that the executing thread must not wait for: the outlet's, or what `nudged`
  /// says.
  void nudge();

  // The executing thread calls the next seven.

  /// To tell when it is complete. False: more watches than a client may have.
  [[nodiscard]] bool watch_event(std::uint64_t watch, CUevent event, CUcontext context);
  [[nodiscard]] bool watch_stream(std::uint64_t watch, CUstream stream, CUcontext context);
  [[nodiscard]] bool refuse_watch(std::uint64_t watch, CUresult why);
  /// Begins a copy on `stream` of `context`, which is current. An error of the driver is told to the client,
  /// too. A client that keeps to its window never waits here for more than the end of a sending.
  CUresult copy(std::uint64_t ticket, CUdeviceptr from, std::size_t size, CUstream stream, CUcontext context);
  /// Tells that a copy did not begin.
  void refuse_copy(std::uint64_t ticket, CUresult why);
  /// Before a stream or event is destroyed or captured: nobody asks about it any more, and who watches it is
  /// told `why`.
  void forget(const void* object, CUresult why);
  /// Before a context is destroyed: waits for what was given to it.
  void forget_context(CUcontext context);
  /// Another process takes the session over; contexts have been forgotten.
  void reset();

  /// Sends the bytes of the copies that are complete. Any thread, before it sends a reply: then there is
  /// somebody who reads. `reply_follows`: as of Outlet::push().
  void deliver(bool reply_follows);
  /// Tells of a function of the client's that a stream has come to, behind the bytes of the copies that were
  /// complete by then. Called by the driver, where it must not be asked anything. `untold`: there is no
  /// conversation.
  void announce(const wire::HostFunction& call, std::function<void()> untold);
  /// Whether everything that was to be told has been told.
  [[nodiscard]] bool idle();

 private:
  struct Item {
    enum class Kind { event, stream, copy } kind;
    std::uint64_t name;  ///< of the watch, or the ticket; 0: there is nobody left to tell
    CUcontext context;
    void* object;  ///< what is asked about; of a copy: its event, to be used again
    CUresult result = CUDA_SUCCESS;
    std::byte* slot = nullptr;
    std::size_t size = 0;
    bool known = false;         ///< `result` is: nothing is to be asked any more
    std::uint64_t through = 0;  ///< all frames up to here had been executed when it was found complete
  };

  struct Announcement {
    wire::HostFunction call;
    std::function<void()> untold;
  };

  static constexpr std::size_t most_copies = wire::large_pieces + wire::small_pieces;

  bool add(Item item);
  /// Until `there_is()`: copies of `least` to `most` bytes go, of which the client must have taken some.
  template <class ThereIs>
  void make_room(std::unique_lock<std::mutex>& lock, std::size_t least, std::size_t most, ThereIs there_is);
  void run();
  CUresult ask(const Item& item);            // precondition: items_mutex_ held
  void bring_out_prints(CUcontext context);  // precondition: items_mutex_ held
  enum class Left { nothing, something, until_memory_is_back };
  Left look();
  /// While memory is away only what is known already is done. Precondition: items_mutex_ held
  void look_at(bool copies, const Residence::Visit& visit, std::vector<Item>& done);
  void send_copies(std::vector<Item>& done, bool reply_follows);  // precondition: delivering_ held
  void send_watches(const std::vector<Item>& done);               // precondition: delivering_ held
  void send_announcements(const std::vector<Announcement>& announcements);
  CUevent take_event(CUcontext context);  // precondition: items_mutex_ held

  const DriverApi& api_;
  Outlet& outlet_;
  const std::atomic<std::uint64_t>& executed_;
  const std::function<Deferred()> take_deferred_;
  Residence* const residence_;
  const std::function<void()> on_nudge_;

  std::mutex delivering_;  // held while completions are found and sent; taken before items_mutex_
  std::function<void()> send_prints_;

  std::mutex items_mutex_;  // protects the rest
  std::condition_variable wakes_;
  std::condition_variable room_;  // a copy has been sent
  std::vector<Item> items_;
  std::vector<Announcement> announcements_;
  std::size_t watched_ = 0;
  std::size_t held_ = 0;  // copies in items_, and those that the client may not have
  std::map<CUcontext, std::vector<CUevent>> free_events_;
  std::optional<CopySlots> slots_;
  bool fresh_ = false;  // something was added since the thread last looked
  bool nudged_ = false;
  bool stopping_ = false;
  std::thread thread_;

  std::atomic<std::size_t> undelivered_{
      0};  // copies that are in items_ or being sent; grows under items_mutex_
};

}  // namespace gpupool::worker
