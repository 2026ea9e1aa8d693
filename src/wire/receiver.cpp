#include "wire/receiver.h"

#include <algorithm>
#include <cstring>

namespace gpupool::wire {

bool Receiver::has_frame() const {
  FrameHeader header{};
  if (!read_front(std::span(buffer_).subspan(begin_, buffered()), header)) return false;
  return buffered() >= header.length || !valid(header);  // an invalid one is to be found out, not waited for
}

bool Receiver::fill(std::size_t least) {
  if (buffered() >= least) return true;
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - begin_ < least) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ = buffered();
    begin_ = 0;
    if (buffer_.size() < least) buffer_.resize(least);
  }
  while (buffered() < least) {
    const std::size_t got = stream_.receive_some(buffer_.data() + end_, buffer_.size() - end_);
    if (got == 0) {
      ended_ = true;
      return false;
    }
    end_ += got;
  }
  return true;
}

bool Receiver::receive(FrameHeader& header, std::span<const std::byte>& body) {
  if (!fill(sizeof(FrameHeader))) return false;
  if (!read_front(std::span(buffer_).subspan(begin_, buffered()), header) || !valid(header)) return false;
  if (!fill(header.length)) return false;
  body = std::span(buffer_).subspan(begin_ + sizeof(FrameHeader), header.length - sizeof(FrameHeader));
  begin_ += header.length;
  return true;
}

bool Receiver::take(void* into, std::size_t size) {
  const std::size_t here = std::min(size, buffered());
  std::memcpy(into, buffer_.data() + begin_, here);
  begin_ += here;
  if (size == here || stream_.receive(static_cast<std::byte*>(into) + here, size - here)) return true;
  ended_ = true;
  return false;
}

bool Receiver::skip(std::uint64_t size) {
  while (size > 0) {
    if (buffered() == 0 && !fill(1)) return false;
    const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(size, buffered()));
    begin_ += here;
    size -= here;
  }
  return true;
}

}  // namespace gpupool::wire
