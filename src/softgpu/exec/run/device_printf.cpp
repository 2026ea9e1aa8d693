#include "softgpu/exec/run/device_printf.h"

#include <cstdio>
#include <cstring>

namespace softgpu {
namespace {

constexpr size_t max_printed_text = 65536;

bool read_string(const PrintfReader& reader, uint64_t address, std::string& text, uint64_t& bad) {
  for (uint64_t at = address; text.size() < max_printed_text; ++at) {
    if (!reader.readable(at, 1)) {
      bad = at;
      return false;
    }
    const char c = *reinterpret_cast<const char*>(at);
    if (c == '\0') return true;
    text += c;
  }
  return true;
}

class ArgumentReader {
 public:
  ArgumentReader(const PrintfReader& reader, uint64_t address) : reader_(reader), base_(address) {}
  // A value of `size` bytes at the next aligned place.
  bool take(size_t size, uint64_t& value, uint64_t& bad) {
    offset_ = (offset_ + size - 1) / size * size;
    const uint64_t at = base_ + offset_;
    if (!reader_.readable(at, size)) {
      bad = at;
      return false;
    }
    value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(at), size);
    offset_ += size;
    return true;
  }

 private:
  const PrintfReader& reader_;
  uint64_t base_, offset_ = 0;
};

template <class... T>
void append_formatted(std::string& text, const std::string& spec, T... values) {
  char buffer[512];
  // The specification was taken apart and put together by us: it takes exactly these arguments.
  const int length = std::snprintf(buffer, sizeof(buffer), spec.c_str(), values...);
  if (length > 0) text.append(buffer, std::min<size_t>(static_cast<size_t>(length), sizeof(buffer) - 1));
}

}  // namespace

bool device_printf(const PrintfReader& reader, uint64_t format_address, uint64_t arguments, std::string& text,
                   uint64_t& bad) {
  std::string format;
  if (!read_string(reader, format_address, format, bad)) return false;
  ArgumentReader next(reader, arguments);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      text += '%';
      ++i;
      continue;
    }
    std::string spec = "%";
    size_t k = i + 1;
    uint64_t value = 0;
    auto width =
        [&] {  // a number, or '*' for an int argument; bounded so that no line can grow without limit
          int number = 0;
          if (k < format.size() && format[k] == '*') {
            ++k;
            if (!next.take(4, value, bad)) return false;
            number = static_cast<int>(value);
            if (number < 0) {
              spec += '-';
              number = -number;
            }
          } else {
            if (k >= format.size() || format[k] < '0' || format[k] > '9') return true;
            for (; k < format.size() && format[k] >= '0' && format[k] <= '9'; ++k) {
              number = std::min(number * 10 + (format[k] - '0'), 400);
            }
          }
          spec += std::to_string(std::min(number, 400));
          return true;
        };
    while (k < format.size() && std::strchr("-+ #0", format[k]) != nullptr) spec += format[k++];
    if (!width()) return false;
    if (k < format.size() && format[k] == '.') {
      spec += '.';
      ++k;
      if (!width()) return false;
    }
    bool wide = false;
    for (; k < format.size() && std::strchr("hlLzjtq", format[k]) != nullptr; ++k) {
      wide |=
          format[k] == 'l' || format[k] == 'z' || format[k] == 'j' || format[k] == 't' || format[k] == 'q';
    }
    const char kind = k < format.size() ? format[k] : '\0';
    switch (kind) {
      case 'd':
      case 'i':
        if (!next.take(wide ? 8 : 4, value, bad)) return false;
        append_formatted(
            text, spec + "lld",
            wide ? static_cast<long long>(value) : static_cast<long long>(static_cast<int>(value)));
        break;
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        if (!next.take(wide ? 8 : 4, value, bad)) return false;
        append_formatted(text, spec + "ll" + kind, static_cast<unsigned long long>(value));
        break;
      case 'c':
        if (!next.take(4, value, bad)) return false;
        append_formatted(text, spec + "c", static_cast<int>(value & 0xff));
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        if (!next.take(8, value, bad)) return false;
        double number;
        std::memcpy(&number, &value, 8);
        append_formatted(text, spec + kind, number);
        break;
      }
      case 'p':
        if (!next.take(8, value, bad)) return false;
        append_formatted(text, spec + "p", reinterpret_cast<void*>(value));
        break;
      case 's': {
        if (!next.take(8, value, bad)) return false;
        std::string argument;
        if (value == 0)
          argument = "(null)";
        else if (!read_string(reader, value, argument, bad))
          return false;
        if (spec == "%")
          text += argument;
        else
          append_formatted(text, spec + "s", argument.c_str());
        break;
      }
      default:  // unknown: shown as it stands
        text.append(format, i, k - i + (kind != '\0' ? 1 : 0));
    }
    i = k;
    if (text.size() > max_printed_text) break;
  }
  return true;
}

}  // namespace softgpu
