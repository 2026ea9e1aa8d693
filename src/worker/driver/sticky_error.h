// Errors after which a process can do nothing more on its devices: CUDA calls them sticky.
#pragma once

namespace gpupool::worker {

/// By CUresult: those that cuda.h describes as leaving the process in an inconsistent state.
[[nodiscard]] constexpr bool is_sticky(int error) {
  switch (error) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
      return true;
    default:
      return false;
  }
}

}  // namespace gpupool::worker
