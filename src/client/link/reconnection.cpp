// How a connection that broke is made anew, on a thread of its own.
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "base/mutex.h"
#include "base/quiet_thread.h"
#include "client/link/connection.h"
#include "client/process/log.h"
#include "client/process/main_wait.h"
#include "shared_api/error_log.h"
#include "wire/transport/dial.h"
#include "wire/transport/worker_address.h"

namespace gpupool::client {
namespace {

constexpr int again_connect_ms = 3000;
constexpr int again_hello_ms = 5000;
/// A break that lasts no longer is not worth a word to the user.
constexpr auto quiet = std::chrono::seconds(2);
/// A program that says nothing for so long is listened for: what the worker tells it meanwhile is taken in.
constexpr auto quiet_before_listening = std::chrono::milliseconds(1000);
constexpr auto look_while_resting = std::chrono::milliseconds(2000);

bool was_refused(const std::string& error) {
  return error.find(std::strerror(ECONNREFUSED)) != std::string::npos;
}

/// Whether the worker is on another machine behind a port of this one, as through SSH. Then that nobody
/// listens says that the tunnel has ended, and nothing of the worker.
bool is_forwarded(const wire::WorkerAddress& worker) {
  const bool port_of_this_machine = worker.tcp.starts_with("127.") || worker.tcp.starts_with("localhost:") ||
                                    worker.tcp.starts_with("[::1]:");
  if (!port_of_this_machine || worker.local.empty()) return false;
  // The folder of the session goes with its worker; that of all sessions of a node stays.
  const auto folder = std::filesystem::path(worker.local).parent_path().parent_path();
  std::error_code unknown;
  return std::filesystem::status(folder, unknown).type() == std::filesystem::file_type::not_found;
}

}  // namespace

void Connection::survive(Survival how) {
  outbox_.retain();
  {
    const MutexLock lock(linking_);
    survival_ = std::move(how);
  }
  mender_ = quiet_thread([this] { mend(); });
  listener_ = quiet_thread([this] {
    prctl(PR_SET_NAME, "gpupool-listen");
    replies_.listen(quiet_before_listening, survival_->errand ? survival_->errand : [] {});
  });
}

void Connection::look_again(bool elsewhere) {
  std::uint64_t standing = 0;
  bool leave = false;
  {
    const MutexLock lock(linking_);
    looks_again_ = true;
    leave = elsewhere && state_ == State::up;
    standing = connection_;
  }
  linked_.notify_all();
  if (leave) fail(standing, true);
}

bool Connection::await_connected(std::chrono::milliseconds limit) {
  const MainWait wait;
  MutexLock lock(linking_);
  linked_.wait_for(linking_, limit, [this]() REQUIRES(linking_) { return state_ != State::down; });
  return state_ == State::up;
}

bool Connection::pause_for(std::chrono::milliseconds time) {
  MutexLock lock(linking_);
  linked_.wait_for(linking_, time,
                   [this]() REQUIRES(linking_) { return ending_ || state_ == State::lost || looks_again_; });
  return std::exchange(looks_again_, false);
}

void Connection::mend() {
  prctl(PR_SET_NAME, "gpupool-link");
  MutexLock lock(linking_);
  while (true) {
    linked_.wait(linking_, [this]() REQUIRES(linking_) { return ending_ || state_ != State::up; });
    if (ending_) return;
    const bool over = state_ == State::lost;
    lock.unlock();
    if (over) return let_go();
    {
      const CallbacksLater later;  // this thread reads, too
      bool mended = false;
      try {
        mended = reconnect();
      } catch (const std::exception& failure) {
        log_line(std::string("The connection to the GPU worker could not be made again: ") + failure.what());
      }
      if (!mended) lose();
    }
    lock.lock();
  }
}

void Connection::let_go() {
  outbox_.stop();
  replies_.lose();
  outbox_.let_go();
  replies_.let_go();
  if (listener_.joinable()) listener_.join();
  std::unique_ptr<wire::Stream> closes;
  const MutexLock lock(linking_);
  std::swap(stream_, closes);
}

/// False: the session is lost.
bool Connection::reconnect() {
  using Kind = ReconnectPolicy::Step::Kind;
  using Result = ReconnectPolicy::Result;
  outbox_.pause();
  if (!outbox_.await_idle() || !replies_.take_lead()) return false;
  const auto start = Clock::now();
  bool told = false, wanted = false;
  Result last = Result::broke;
  std::string error;
  while (true) {
    const auto step = survival_->next(last, wanted);
    if (last == Result::broke) last = Result::none;
    wanted = false;
    switch (step.kind) {
      case Kind::give_up: {
        const std::string text =
            "The connection to the GPU worker broke and could not be made again: " + step.message +
            (error.empty() ? "." : " (" + error + ").");
        if (step.told) {
          log_debug(text);
        } else {
          log_line(text);
        }
        return false;
      }
      case Kind::wait:
      case Kind::rest: {
        if (!told && Clock::now() - start > quiet && step.kind == Kind::wait) {
          log_line("The connection to the GPU worker broke; trying to connect again.");
          told = true;
        }
        // A call under way would be told the same by the worker: there is no lease. What has to wait on is
        // reason enough to try again; and while it rests the session may be closed or attached.
        if (step.kind == Kind::rest) replies_.refuse_waiting();
        wanted = pause_for(step.kind == Kind::wait ? step.time : look_while_resting);
        if (step.kind == Kind::rest && !wanted) wanted = replies_.awaited();
        const MutexLock lock(linking_);
        if (ending_ || state_ == State::lost) return false;
        continue;
      }
      case Kind::dial:
        break;
    }
    std::unique_ptr<wire::Stream> stream;
    wire::HelloReply answer;
    last = greet_again(step, stream, answer, error);
    if (last != Result::none) continue;
    const std::uint64_t received = std::max<std::uint64_t>(answer.received, 1);  // HELLO was the first
    if (!outbox_.can_go_on_after(received) || answer.pushed < replies_.taken()) {
      log_line("The GPU worker lacks what this process has said to it: the session is lost.");
      return false;
    }
    if (!survival_->accept(answer, error)) {
      log_line("The GPU worker cannot be used after the connection broke: " + error);
      return false;
    }
    if (!replies_.read_pushes(answer.pushed)) {
      last = Result::failed;
      error = "it broke again";
      continue;
    }
    log_debug("connected again by " + stream->description());
    std::uint64_t number = 0;
    {
      const MutexLock lock(linking_);
      if (ending_ || state_ == State::lost) return false;
      std::swap(stream_, stream);
      number = ++connection_;
      state_ = State::up;
      looks_again_ = false;
    }
    linked_.notify_all();
    const auto repeat = replies_.unanswered(received);
    // Before anybody is woken who waits for that: nobody says it a second time.
    outbox_.acknowledge(received);
    replies_.go_on(number);
    outbox_.go_on(*stream_, number, received, repeat);
    if (told) log_line("The connection to the GPU worker is back.");
    return true;
  }
}

ReconnectPolicy::Result Connection::greet_again(const ReconnectPolicy::Step& step,
                                                std::unique_ptr<wire::Stream>& stream,
                                                wire::HelloReply& answer, std::string& error) {
  using Result = ReconnectPolicy::Result;
  const auto at_most = [&](int timeout_ms) {
    return static_cast<int>(std::clamp<std::int64_t>(step.time.count(), 1, timeout_ms));
  };
  if (survival_->dial) {
    stream = survival_->dial(step.address, error);
    if (stream == nullptr) return was_refused(error) ? Result::refused : Result::failed;
    return say_hello(*stream, at_most(again_hello_ms), answer, error);
  }
  wire::WorkerAddress worker;
  std::vector<wire::Transport> ways;
  if (!wire::WorkerAddress::parse(step.address, worker, error) || !wire::ways_to(worker, ways, error))
    return Result::failed;
  Result last = Result::failed;
  for (const wire::Transport way : ways) {
    stream = wire::dial(worker, way, at_most(again_connect_ms), error);
    if (stream == nullptr) {
      last = was_refused(error) && !is_forwarded(worker) ? Result::refused : Result::failed;
      continue;
    }
    last = say_hello(*stream, at_most(again_hello_ms), answer, error);
    if (last != Result::failed) return last;
  }
  return last;
}

ReconnectPolicy::Result Connection::say_hello(wire::Stream& stream, int timeout_ms, wire::HelloReply& answer,
                                              std::string& error) {
  using Result = ReconnectPolicy::Result;
  struct {
    wire::FrameHeader header;
    wire::HelloBody body;
  } frame{};
  static_assert(sizeof(frame) == sizeof(frame.header) + sizeof(frame.body));
  frame.header = {sizeof(frame), static_cast<std::uint16_t>(wire::Control::hello), wire::flag_ask, 0, 0, 0};
  ++survival_->hello.connection;
  frame.body = survival_->hello;
  frame.body.sent = outbox_.last_sequence();
  frame.body.taken = replies_.taken();
  error = "it does not answer";
  if (!stream.send(std::as_bytes(std::span(&frame, 1))) || !stream.readable(timeout_ms))
    return Result::failed;
  wire::Receiver& receiver = replies_.read_from(stream);
  wire::FrameHeader header{};
  wire::ReplyHeader result{};
  std::span<const std::byte> body;
  if (!receiver.receive(header, body)) {
    error = "it hung up";
    return Result::failed;
  }
  error.clear();
  if (header.flags != wire::flag_reply || !wire::read_front(body, result)) return Result::failed;
  if (result.status == wire::Status::unknown || result.status == wire::Status::closed) return Result::unknown;
  wire::Reader in(body.subspan(sizeof(result)));
  if (result.status != wire::Status::ok || !wire::HelloReply::decode(in, answer)) return Result::failed;
  return Result::none;
}

}  // namespace gpupool::client
