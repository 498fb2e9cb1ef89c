# engine, nn and cuda make one library, orrery_core: the operations and formulas, and their kernels.

# --- libraries of the system ------------------------------------------------------------------------------------------

find_package(Threads REQUIRED)
find_package(TBB CONFIG QUIET)
orrery_require_package(TBB_FOUND libtbb-dev)
# Finds the pthread build in its own folder: the alternatives system may point the plain name at another one.
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
  # oneTBB loads its allocator, if it finds one, by a dlopen within a dlopen, in which glibc 2.36 crashes without free
  # memory.  Linking it avoids that call.
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
list(FILTER core_sources EXCLUDE REGEX "/engine/distributed/mpi\\.cpp$")
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS cuda/*.cu)

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(JOIN " " compiler_flags ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} -std=c++20 ${arithmetic})
string(STRIP "${compiler_flags}" compiler_flags)

# A fingerprint of the headers shows whether a plug-in (engine/settings/plugin.h) fits.
file(GLOB_RECURSE plugin_headers CONFIGURE_DEPENDS engine/*.h nn/*.h cuda/*.h cuda/*.cuh)
set(fingerprint)
foreach(file IN LISTS plugin_headers)
  file(SHA256 "${file}" hash)
  string(APPEND fingerprint "${hash}")
endforeach()
string(SHA256 fingerprint "${fingerprint}")
string(SUBSTRING "${fingerprint}" 0 12 fingerprint)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${plugin_headers})

# A plug-in is compiled with this compiler and these flags, one list element for each argument: no shell reads them.
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

# For the message that explains why a program cannot use a GPU.
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

# --- libraries for runs on several ranks ------------------------------------------------------------------------------

# One for each MPI that is found (engine/distributed/launcher.h), whose compiler tells where its header and library are.
set(ORRERY_MPI AUTO CACHE STRING "Build the libraries for runs on several ranks: AUTO (for each MPI found), ON or OFF")
set(mpis)
if(ORRERY_MPI)
  foreach(compiler mpicc.openmpi mpicc.mpich mpicc)
    find_program(ORRERY_${compiler} ${compiler})
    mark_as_advanced(ORRERY_${compiler})
    if(NOT ORRERY_${compiler})
      continue()
    endif()
    execute_process(COMMAND ${ORRERY_${compiler}} -show OUTPUT_VARIABLE shown ERROR_QUIET)
    separate_arguments(words UNIX_COMMAND "${shown}")
    set(headers ${words})
    list(FILTER headers INCLUDE REGEX "^-I")
    list(TRANSFORM headers REPLACE "^-I" "")
    list(FILTER words INCLUDE REGEX "^-(L|l|Wl,-rpath)")
    find_file(header mpi.h PATHS ${headers} NO_DEFAULT_PATH NO_CACHE)
    if(NOT header)
      find_file(header mpi.h NO_CACHE)
    endif()
    set(mpi)
    if(header)
      file(STRINGS "${header}" marks REGEX "define +(OPEN_MPI|MPICH_VERSION)" LIMIT_COUNT 1)
      string(REGEX REPLACE ".*OPEN_MPI.*" "openmpi" mpi "${marks}")
      string(REGEX REPLACE ".*MPICH_VERSION.*" "mpich" mpi "${mpi}")
    endif()
    unset(header)
    if(NOT mpi OR TARGET orrery_${mpi})
      continue()
    endif()
    add_library(orrery_${mpi} MODULE engine/distributed/mpi.cpp)
    target_include_directories(orrery_${mpi} SYSTEM PRIVATE ${headers})
    target_compile_definitions(orrery_${mpi} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(orrery_${mpi} PRIVATE orrery_core ${words})
    if(ORRERY_INSTALL)
      install(TARGETS orrery_${mpi} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    endif()
    list(APPEND mpis ${mpi})
  endforeach()
  if(NOT mpis AND NOT ORRERY_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "no MPI is found: install libopenmpi-dev or libmpich-dev, or leave ORRERY_MPI out")
  endif()
endif()
