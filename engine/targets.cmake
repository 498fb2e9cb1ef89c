# engine, nn and cuda make one library, orrery_core: the operations and formulas, and their kernels.

# --- packages of the system -------------------------------------------------------------------------------------------

find_package(Threads REQUIRED)
find_package(TBB CONFIG QUIET)
orrery_require_package(TBB_FOUND libtbb-dev)
# The folder of the pthread build, because the plain name may be a link to another build.
find_library(ORRERY_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread)
find_path(ORRERY_OPENBLAS_INCLUDE cblas.h
          PATH_SUFFIXES openblas-pthread ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread openblas)
orrery_require_package(ORRERY_OPENBLAS_LIBRARY libopenblas-pthread-dev)
orrery_require_package(ORRERY_OPENBLAS_INCLUDE libopenblas-pthread-dev)
find_package(OpenSSL COMPONENTS Crypto QUIET)
orrery_require_package(OPENSSL_FOUND libssl-dev)

function(orrery_link_core_dependencies target)
  target_include_directories(${target} SYSTEM PRIVATE "${ORRERY_OPENBLAS_INCLUDE}")
  target_link_libraries(${target} PRIVATE "${ORRERY_OPENBLAS_LIBRARY}" OpenSSL::Crypto TBB::tbb Threads::Threads
                        ${CMAKE_DL_LIBS})
  # Otherwise oneTBB loads its allocator by a dlopen inside a dlopen, in which glibc 2.36 crashes when
  # memory runs out. A linked library is loaded at the start.
  target_link_libraries(${target} PRIVATE "-Wl,--push-state,--no-as-needed" TBB::tbbmalloc "-Wl,--pop-state")
endfunction()

# --- kernels ----------------------------------------------------------------------------------------------------------

# Kernels for one instruction set each, chosen at run time; a later -march replaces the one above.
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS engine/*avx2.cpp engine/*avx512.cpp engine/*avx512_bf16.cpp engine/*amx.cpp)
foreach(file IN LISTS kernels)
  if(file MATCHES "avx2\\.cpp$")
    set(options -march=x86-64-v3)
  elseif(file MATCHES "avx512\\.cpp$")
    set(options -march=x86-64-v4)
  elseif(file MATCHES "avx512_bf16\\.cpp$")
    set(options -march=x86-64-v4 -mavx512bf16)
  else()
    set(options -march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16)
  endif()
  set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${options}")
endforeach()

# --- the library ------------------------------------------------------------------------------------------------------

file(GLOB_RECURSE core_sources CONFIGURE_DEPENDS engine/*.cpp nn/*.cpp)
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS cuda/*.cu)

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(JOIN " " compiler_flags ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} -std=c++20 ${arithmetic})
string(STRIP "${compiler_flags}" compiler_flags)

# A plug-in (engine/settings/plugin.h) must have the same fingerprint of the headers.
file(GLOB_RECURSE plugin_headers CONFIGURE_DEPENDS engine/*.h nn/*.h cuda/*.h cuda/*.cuh)
set(fingerprint)
foreach(file IN LISTS plugin_headers)
  file(SHA256 "${file}" hash)
  string(APPEND fingerprint "${hash}")
endforeach()
string(SHA256 fingerprint "${fingerprint}")
string(SUBSTRING "${fingerprint}" 0 12 fingerprint)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${plugin_headers})

# The compiler and flags of plug-ins, one list element for each argument: no shell reads them.
if(ORRERY_CUDA)
  orrery_nvcc_architectures(plugin_architectures ${CMAKE_CUDA_ARCHITECTURES})
  set(plugin_compiler "${CMAKE_CUDA_COMPILER}" -x cu ${plugin_architectures} --expt-relaxed-constexpr
                      -DORRERY_CUDA=1 -O3 -std=c++20 "-Xcompiler=-fPIC,-Wall,${arithmetic_of_host}")
else()
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1} ${compiler_flags}")
  set(plugin_compiler "${CMAKE_CXX_COMPILER}" ${flags} -fPIC -Wall -x c++)
endif()
list(JOIN plugin_compiler ")orrery\",\n    R\"orrery(" plugin_compiler)
file(CONFIGURE OUTPUT build_facts.cpp @ONLY CONTENT [[
#include "engine/system/build_facts.h"

namespace orrery::build_facts {
const char* const version = "@PROJECT_VERSION@";
const char* const compiler_flags = R"orrery(@compiler_flags@)orrery";
const char* const headers = "@fingerprint@";
const char* const source_folder = R"orrery(@PROJECT_SOURCE_DIR@)orrery";
const char* const plugin_compiler[] = {
    R"orrery(@plugin_compiler@)orrery",
    nullptr};
}  // namespace orrery::build_facts
]])
list(APPEND core_sources "${PROJECT_BINARY_DIR}/build_facts.cpp")

set_source_files_properties(engine/system/processor.cpp PROPERTIES COMPILE_OPTIONS -march=x86-64)  # see the file

# For the error message of a program without code for the GPU.
list(JOIN CMAKE_CUDA_ARCHITECTURES "," architectures)
if(NOT ORRERY_CUDA)
  set(architectures "none")
elseif(architectures STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
  list(JOIN CMAKE_CUDA_ARCHITECTURES_NATIVE "," architectures)
  set(architectures "native, which was ${architectures}")
endif()
set_source_files_properties(cuda/runtime/runtime.cu PROPERTIES COMPILE_DEFINITIONS
  "ORRERY_CUDA_ARCHITECTURES=\"${architectures}\"")

add_library(orrery_core SHARED ${core_sources})
orrery_describe_library(orrery_core core)
orrery_link_core_dependencies(orrery_core)
if(ORRERY_CUDA)
  target_sources(orrery_core PRIVATE ${cuda_sources})
  target_compile_definitions(orrery_core PUBLIC ORRERY_CUDA=1)
  target_compile_options(orrery_core PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(orrery_core PUBLIC CUDA::cudart)
endif()
orrery_add_formulas(orrery_core ${core_sources})
