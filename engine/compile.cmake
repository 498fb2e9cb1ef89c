# Compiler flags of this project's targets, and of no others.

# Without optimization the library is a hundred times slower; CMake's default build type and Debug
# do not optimize. Only this folder's variables change: the parent's targets keep its flags.
if(ORRERY_OPTIMIZE AND NOT PROJECT_IS_TOP_LEVEL)
  set(suffix)
  if(CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    string(TOUPPER "_${CMAKE_BUILD_TYPE}" suffix)
  endif()
  set(languages CXX)
  if(ORRERY_CUDA)
    list(APPEND languages CUDA)
  endif()
  foreach(language IN LISTS languages)
    if(NOT "${CMAKE_${language}_FLAGS} ${CMAKE_${language}_FLAGS${suffix}}" MATCHES "(^| )-O[^0]")
      string(APPEND CMAKE_${language}_FLAGS${suffix} " -O3 -DNDEBUG")
      message(STATUS "orrery: ${language} is compiled with -O3 -DNDEBUG, since the build type "
                     "'${CMAKE_BUILD_TYPE}' does not optimize; ORRERY_OPTIMIZE=OFF keeps the parent's flags")
    endif()
  endforeach()
  get_directory_property(inherited COMPILE_OPTIONS)  # these follow the flags
  string(REPLACE "-O0" "" inherited "${inherited}")
  set_directory_properties(PROPERTIES COMPILE_OPTIONS "${inherited}")
endif()

# -ffp-contract=fast: with -std=c++20 g++ otherwise never fuses a multiplication and an addition.
# -fno-math-errno, -fno-trapping-math: errno and the floating-point flags are unused, but keep g++ from
# vectorizing loops over square roots and ternaries. No result, infinity or NaN changes.
if(ORRERY_NATIVE)
  set(march -march=native)
else()
  set(march -march=x86-64-v3)
endif()
set(arithmetic -ffp-contract=fast -fno-math-errno -fno-trapping-math ${march})
string(JOIN "," arithmetic_of_host ${arithmetic})
set(werror "$<$<BOOL:${ORRERY_WERROR}>:-Werror>")
set(werror_of_nvcc "$<$<BOOL:${ORRERY_WERROR}>:-Werror=all-warnings>")
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;${werror};${arithmetic}>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on "text" + std::string: GCC bug 105329.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17)
  # False alarms on std::stable_sort, whose temporary buffer in the headers of g++ 12 is a deprecated function: without
  # __DEPRECATED these headers mark none of their functions.  Other deprecated functions still have a warning.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-U__DEPRECATED>")
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${werror_of_nvcc};-Xcompiler=-Wall,${arithmetic_of_host}>")
if(ORRERY_SANITIZE)
  set(sanitizer -fsanitize=${ORRERY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1 -UNDEBUG)
  if(ORRERY_LIBFUZZER)
    list(APPEND sanitizer -fsanitize=fuzzer-no-link)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitizer}>")
  add_link_options(-fsanitize=${ORRERY_SANITIZE})
else()
  add_link_options(-Wl,--no-undefined)  # the library that uses an undefined name reports it
endif()
# Emulated kernels contain nvcc's `#pragma unroll`. All files get the same flags, so that the emulated
# build finds the files that do not depend on CUDA, which are most, in a compiler cache.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas;-Wno-pass-failed>")
