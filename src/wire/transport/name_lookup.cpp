#include "wire/transport/name_lookup.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/quiet_thread.h"

namespace gpupool::wire {
namespace {

struct Query {
  std::string host, port;
  addrinfo hints{};
};

struct Answer {
  int code = 0;
  Addresses list;
};

Answer ask(const Query& query) {
  addrinfo* list = nullptr;
  const char* const host = query.host.empty() ? nullptr : query.host.c_str();
  const int code = getaddrinfo(host, query.port.c_str(), &query.hints, &list);
  return {code, Addresses(code == 0 ? list : nullptr)};
}

/// Shared with the thread that asks, which may outlast the one that waits.
struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Answer> answer;
};

std::optional<Answer> ask_within(const Query& query, int timeout_ms) {
  const auto pending = std::make_shared<Pending>();
  quiet_thread([pending, query] {
    Answer answer = ask(query);
    const std::lock_guard lock(pending->mutex);
    pending->answer = std::move(answer);
    pending->changed.notify_one();
  }).detach();
  std::unique_lock lock(pending->mutex);
  pending->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                            [&] { return pending->answer.has_value(); });
  return std::exchange(pending->answer, std::nullopt);
}

std::optional<Query> query_of(const std::string& address, bool passive) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Query query{address.substr(0, colon), address.substr(colon + 1), {}};
  std::string& host = query.host;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  query.hints.ai_family = AF_UNSPEC;
  query.hints.ai_socktype = SOCK_STREAM;
  query.hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  return query;
}

}  // namespace

Addresses look_up(const std::string& address, bool passive, std::optional<int> timeout_ms,
                  std::string& error) {
  auto query = query_of(address, passive);
  if (!query) {
    error = "address without a port: " + address;
    return nullptr;
  }
  Query number = *query;
  number.hints.ai_flags |= AI_NUMERICHOST;
  // Most addresses are numbers, which need nobody's answer and so no thread.
  std::optional<Answer> answer = ask(number);
  if (answer->code == EAI_NONAME) {
    try {
      answer = timeout_ms ? ask_within(*query, *timeout_ms) : ask(*query);
    } catch (const std::exception&) {
      // Where no thread can be had, an answer that comes late is better than none.
      answer = ask(*query);
    }
  }
  if (!answer) {
    error = "cannot resolve " + address + ": no name server answered within " + std::to_string(*timeout_ms) +
            " ms";
    return nullptr;
  }
  if (answer->code != 0) error = "cannot resolve " + address + ": " + gai_strerror(answer->code);
  return std::move(answer->list);
}

}  // namespace gpupool::wire
