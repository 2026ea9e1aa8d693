// How a std::timed_mutex waits, by a function that GCC's ThreadSanitizer knows: it takes
// pthread_mutex_clocklock for none, and what the mutex guards for a race.
#include <pthread.h>

#include <ctime>

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  constexpr long second = 1'000'000'000;
  timespec now{}, deadline{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += until->tv_sec - now.tv_sec;
  deadline.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (deadline.tv_nsec < 0) {
    deadline.tv_nsec += second;
    --deadline.tv_sec;
  } else if (deadline.tv_nsec >= second) {
    deadline.tv_nsec -= second;
    ++deadline.tv_sec;
  }
  return pthread_mutex_timedlock(mutex, &deadline);
}
