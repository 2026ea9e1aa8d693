#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
#include <pthread.h>
#include <time.h>

/// GCC 12's ThreadSanitizer knows pthread_mutex_timedlock and not this one, which timed mutexes call: it
/// would not see them locked, and complain of their being unlocked.
extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  constexpr long second = 1'000'000'000;
  timespec now{}, deadline{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &deadline);
  const long ns = deadline.tv_nsec + until->tv_nsec - now.tv_nsec + second;
  deadline.tv_sec += until->tv_sec - now.tv_sec + ns / second - 1;
  deadline.tv_nsec = ns % second;
  return pthread_mutex_timedlock(mutex, &deadline);
}
#endif
