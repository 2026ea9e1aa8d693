#include "worker/objects/export_table.h"

#include <algorithm>

#include <sys/random.h>

#include <utility>

namespace gpupool::worker {
namespace {

bool holds_memory(ExportKind kind) {
  return kind == ExportKind::memory || kind == ExportKind::physical;
}

bool same_memory(const std::weak_ptr<PhysicalMemory>& left, const std::weak_ptr<PhysicalMemory>& right) {
  return !left.owner_before(right) && !right.owner_before(left);
}

bool same(const Export& left, const Export& right) {
  return left.kind == right.kind && same_memory(left.memory, right.memory) && left.offset == right.offset &&
         left.length == right.length && left.pool == right.pool && left.event == right.event;
}

Digest key_of(const ExportTicket& ticket) {
  return sha256(std::as_bytes(std::span(ticket.secret)));
}

}  // namespace

std::optional<ExportTicket> ExportTable::add(Export object) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) {
    return holds_memory(entry.second.object.kind) && entry.second.object.memory.expired();
  });
  for (const auto& [key, entry] : entries_) {
    if (same(entry.object, object)) return entry.ticket;
  }
  if (entries_.size() >= most) return std::nullopt;
  ExportTicket ticket;
  ticket.kind = static_cast<std::uint32_t>(object.kind);
  ticket.office = office_;
  if (getrandom(ticket.secret.data(), ticket.secret.size(), 0) !=
      static_cast<ssize_t>(ticket.secret.size())) {
    return std::nullopt;
  }
  entries_.emplace(key_of(ticket), Entry{ticket, std::move(object)});
  return ticket;
}

std::optional<Export> ExportTable::find(const ExportTicket& ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(ticket));
  if (found == entries_.end() || found->second.ticket.kind != ticket.kind || !is_own(ticket))
    return std::nullopt;
  const Export& object = found->second.object;
  if (holds_memory(object.kind) && object.memory.expired()) return std::nullopt;
  return object;
}

bool ExportTable::gives_out_any() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    const Export& object = entry.second.object;
    return !holds_memory(object.kind) || !object.memory.expired();
  });
}

void ExportTable::end_memory(const PhysicalMemory* memory, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) {
    const Export& object = entry.second.object;
    return object.kind == ExportKind::memory && object.offset == offset &&
           object.memory.lock().get() == memory;
  });
}

void ExportTable::end_event(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.object.kind == ExportKind::event && entry.second.object.event == event;
  });
}

void ExportTable::end_pool(std::uint64_t pool) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.object.kind == ExportKind::pool && entry.second.object.pool == pool;
  });
}

void ExportTable::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace gpupool::worker
