// Which errors of a kernel are looked for beyond those that every launch notices. Chosen when a program is
// compiled: a program without checks runs exactly the code that it ran before there were any.
#pragma once

namespace softgpu {

struct Checks {
  bool memory = false;       // every access lies inside one allocation or variable, to the byte
  bool race = false;         // accesses to shared memory that nothing orders
  bool initialised = false;  // shared memory is written before it is read
  bool barrier = false;      // barriers and .sync instructions are reached by all whom they name

  [[nodiscard]] bool any() const { return memory || race || initialised || barrier; }
  // What the accesses themselves must be watched for.
  [[nodiscard]] bool of_accesses() const { return memory || race || initialised; }
};

}  // namespace softgpu
