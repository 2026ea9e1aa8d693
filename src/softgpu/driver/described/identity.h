// What sets the drivers apart that are built from these sources; each defines its own.
#pragma once

namespace softgpu::driver {

struct Identity {
  const char* device_name;
  const char* log_name;     // before its lines on stderr
  char uuid_name[4];        // in the devices' UUIDs
  bool takes_machine_code;  // cubins and their entries in fat binaries, besides PTX
  bool executes;            // kernels run; without, launches are checked and do nothing
};

extern const Identity driver_identity;

}  // namespace softgpu::driver
