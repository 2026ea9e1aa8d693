// Where the usage records of a user's processes lie: /dev/shm/gpupool-softgpu-<uid>, a folder that nobody
// else may enter, with one file per process, named by its number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/usage/usage_record.h"

namespace softgpu::usage {

// Unmaps when it goes.
class MappedRecord {
 public:
  explicit MappedRecord(Record* record) : record_(record) {}
  ~MappedRecord();
  MappedRecord(const MappedRecord&) = delete;
  MappedRecord& operator=(const MappedRecord&) = delete;
  Record& operator*() const { return *record_; }
  Record* operator->() const { return record_; }

 private:
  Record* record_;
};

struct ProcessRecord {
  unsigned pid;
  std::unique_ptr<MappedRecord> record;
};

class UsageFolder {
 public:
  // The usual place of this user.
  UsageFolder();
  explicit UsageFolder(std::string path) : path_(std::move(path)) {}

  // This process's record, all zero. Null when the folder cannot be made or is not private to this user: then
  // nothing is told, and nothing depends on it. Removes what processes that are gone have left.
  [[nodiscard]] std::unique_ptr<MappedRecord> create() const;
  void remove_own() const;
  // Of all processes that live.
  [[nodiscard]] std::vector<ProcessRecord> read() const;

 private:
  [[nodiscard]] std::string file_of(unsigned pid) const { return path_ + '/' + std::to_string(pid); }
  // An open descriptor of the folder; -1 unless it is there and private.
  [[nodiscard]] int open_private() const;

  std::string path_;
};

}  // namespace softgpu::usage
