#include "softgpu/driver/described/visible_cards.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "softgpu/driver/described/card_identity.h"

namespace softgpu::driver {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

int card_with_uuid(std::string_view begins, int cards) {
  std::string wanted;
  for (const char c : begins) {
    if (c != '-') wanted += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  int found = -1;
  for (int card = 0; card < cards && !wanted.empty(); ++card) {
    if (!uuid_digits_of_card(card).starts_with(wanted)) continue;
    if (found >= 0) return -1;
    found = card;
  }
  return found;
}

// -1 when it names none.
int card_of(std::string_view entry, int cards) {
  constexpr std::string_view uuid_prefix = "GPU-";
  if (entry.starts_with(uuid_prefix)) return card_with_uuid(entry.substr(uuid_prefix.size()), cards);
  int card = -1;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), card);
  if (error != std::errc() || end != entry.data() + entry.size()) return -1;
  return card < cards ? card : -1;
}

}  // namespace

std::vector<int> visible_cards(std::string_view list, int cards) {
  std::vector<int> found;
  for (;;) {
    const std::size_t comma = list.find(',');
    const int card = card_of(trimmed(list.substr(0, comma)), cards);
    if (card < 0 || std::find(found.begin(), found.end(), card) != found.end()) return found;
    found.push_back(card);
    if (comma == std::string_view::npos) return found;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace softgpu::driver
