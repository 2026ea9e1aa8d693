// What a library cannot do says so once, on standard error, and returns the library's own NOT_SUPPORTED; a
// function that has no status returns nothing that a caller could take for a result.
#pragma once

namespace gpupool::libraries {

/// "gpupool: SUBJECT: TEXT", once for each subject.
void say_once(const char* subject, const char* text);

/// An export that is there so that programs load: says its name and why it does nothing; returns `status`.
int refuse(const char* function, const char* reason, int status);

/// What some functions return by value, with the layouts of NVIDIA's headers.
struct Complex32 {
  float real, imaginary;
};
struct Complex64 {
  double real, imaginary;
};
struct Team {  // ncclTeam_t
  int ranks, rank, stride;
};

}  // namespace gpupool::libraries
