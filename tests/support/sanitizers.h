// The sanitizers of this build.  g++ before 14 defines macros, clang has features.
#pragma once

#if defined(__has_feature)
#define ORRERY_HAS_FEATURE(name) __has_feature(name)
#else
#define ORRERY_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || ORRERY_HAS_FEATURE(address_sanitizer)
#define ORRERY_ADDRESS_SANITIZER 1
#else
#define ORRERY_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || ORRERY_HAS_FEATURE(thread_sanitizer)
#define ORRERY_THREAD_SANITIZER 1
#else
#define ORRERY_THREAD_SANITIZER 0
#endif

namespace orrery {

inline constexpr bool address_sanitizer = ORRERY_ADDRESS_SANITIZER;
inline constexpr bool thread_sanitizer = ORRERY_THREAD_SANITIZER;

}  // namespace orrery
