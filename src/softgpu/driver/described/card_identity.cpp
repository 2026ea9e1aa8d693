#include "softgpu/driver/described/card_identity.h"

#include <cstdio>
#include <cstring>

#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

CUuuid uuid_of_card(int card) {
  // RFC 4122 version 8 (custom): a fixed name of the product, and the card's number. Stable across processes
  // and hosts.
  unsigned char bytes[16] = {0x67, 0x70, 0x75, 0x70, 0x6f, 0x6f, 0x80, 0x6c, 0x80};
  std::memcpy(bytes + 9, driver_identity.uuid_name, sizeof driver_identity.uuid_name);
  bytes[15] = static_cast<unsigned char>(card);
  CUuuid uuid{};
  std::memcpy(uuid.bytes, bytes, sizeof bytes);
  return uuid;
}

std::string uuid_digits_of_card(int card) {
  const CUuuid uuid = uuid_of_card(card);
  std::string digits;
  for (const char byte : uuid.bytes) {
    constexpr const char* hex = "0123456789abcdef";
    digits += hex[static_cast<unsigned char>(byte) >> 4U];
    digits += hex[static_cast<unsigned char>(byte) & 15U];
  }
  return digits;
}

std::string pci_bus_id_of_card(int card) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", static_cast<unsigned>(pci_bus_of_card(card)) & 0xffU);
  return text;
}

}  // namespace softgpu::driver
