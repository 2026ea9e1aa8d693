// What tells a card from others, the same in every process of the machine.
#pragma once

#include <cuda.h>

#include <string>

namespace softgpu::driver {

CUuuid uuid_of_card(int card);
// 32 lower-case hex digits.
std::string uuid_digits_of_card(int card);
inline int pci_bus_of_card(int card) {
  return card + 1;
}
// "0000:02:00.0"
std::string pci_bus_id_of_card(int card);

}  // namespace softgpu::driver
