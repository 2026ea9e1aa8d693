// A ring whose other end writes anything into the memory that both share, at either side of it.
//
// First byte: the ring's size. Then operations of one byte and what they need. What was taken out must be
// what was put in for as long as the other end has not lied.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "wire/bytes.h"
#include "wire/transport/shared_ring.h"

using namespace gpupool;

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : in_(std::as_bytes(std::span(data, size))) {}
  [[nodiscard]] bool ended() const { return in_.rest().empty(); }
  std::uint8_t byte() { return ended() ? std::uint8_t{0} : in_.get<std::uint8_t>(); }
  std::uint16_t number() { return in_.rest().size() < 2 ? std::uint16_t{0} : in_.get<std::uint16_t>(); }
  std::uint64_t position() { return in_.rest().size() < 8 ? ~std::uint64_t{0} : in_.get<std::uint64_t>(); }

 private:
  wire::Reader in_;
};

class Ring {
 public:
  explicit Ring(std::uint64_t size)
      : size_(size),
        data_(new std::byte[size]()),  // of exactly this size, so that a step outside is seen
        indices_(new wire::RingIndices{}),
        writer_(*indices_, data_.get(), size),
        reader_(*indices_, data_.get(), size) {}

  void run(Script& script) {
    while (!script.ended()) step(script);
  }

 private:
  static std::byte at(std::uint64_t position) { return static_cast<std::byte>(position * 31 >> 3); }

  void step(Script& script) {
    switch (script.byte() % 10) {
      case 0:
        write(script.number() % (2 * size_));  // more than fits, and no waste of time
        break;
      case 1:
        read(script.number() % (2 * size_));
        break;
      case 2:
        lie(indices_->head, script.position());
        break;
      case 3:
        lie(indices_->tail, script.position());
        break;
      case 4:  // near the truth
        lie(indices_->head, indices_->head.load() + script.number() - 0x8000);
        break;
      case 5:
        lie(indices_->tail, indices_->tail.load() + script.number() - 0x8000);
        break;
      case 6:
        indices_->reader_asleep = script.byte();
        indices_->writer_asleep = script.byte();
        break;
      case 7:
        writer_.wake_reader();
        break;
      case 8: {
        honest_ = false;
        const auto where = script.number();
        data_[where % size_] = static_cast<std::byte>(script.byte());
        break;
      }
      default:
        must(writer_.room() <= size_);
        must(reader_.available() <= size_);
    }
  }

  void lie(std::atomic<std::uint64_t>& position, std::uint64_t value) {
    honest_ = false;
    position.store(value);
  }

  void write(std::size_t count) {
    const std::unique_ptr<std::byte[]> from(new std::byte[count + 1]);
    for (std::size_t n = 0; n < count; ++n) from[n] = at(written_ + n);
    const bool broken = writer_.broken();
    const std::size_t done = writer_.write_some(from.get(), count);
    must(done <= count && done <= size_ && done <= wire::ring_piece);
    must(!broken || done == 0);
    must(!honest_ || done == std::min<std::uint64_t>({count, size_ - (written_ - taken_), wire::ring_piece}));
    written_ += done;
  }

  void read(std::size_t room) {
    const std::unique_ptr<std::byte[]> into(new std::byte[room + 1]);
    const bool broken = reader_.broken();
    const std::size_t done = reader_.read_some(into.get(), room);
    must(done <= room && done <= size_ && done <= wire::ring_piece);
    must(!broken || done == 0);
    if (honest_) {
      must(done == std::min<std::uint64_t>({room, written_ - taken_, wire::ring_piece}));
      for (std::size_t n = 0; n < done; ++n) must(into[n] == at(taken_ + n));
    }
    taken_ += done;
  }

  std::uint64_t size_;
  std::unique_ptr<std::byte[]> data_;
  std::unique_ptr<wire::RingIndices> indices_;
  wire::RingWriter writer_;
  wire::RingReader reader_;
  std::uint64_t written_ = 0, taken_ = 0;
  bool honest_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script(data, size);
  Ring ring(std::uint64_t{1} << (4 + script.byte() % 10));
  ring.run(script);
  return 0;
}
