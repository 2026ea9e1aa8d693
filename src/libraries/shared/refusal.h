// What a library cannot do says so once, on standard error, and returns the library's own NOT_SUPPORTED.
#pragma once

namespace gpupool::libraries {

/// "gpupool: SUBJECT: TEXT", once for each subject.
void say_once(const char* subject, const char* text);

/// An export that is there so that programs load: says its name and why it does nothing; returns `status`.
int refuse(const char* function, const char* reason, int status);

}  // namespace gpupool::libraries
