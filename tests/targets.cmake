# The test programs, the emulation of a GPU, and the tests of ctest.

find_path(ORRERY_DOCTEST_INCLUDE doctest/doctest.h)
orrery_require_package(ORRERY_DOCTEST_INCLUDE doctest-dev)

# ThreadSanitizer searches for two threads at one address.  Enumerations of options and sizes, statistics and small
# trainings find nothing that other cases do not, and the threads of kernels are emulated one after another.  For
# AddressSanitizer, steps of real sizes, which show peaks of memory, find no more than small ones, 50 times as fast.
set(tests_left_out)
if(ORRERY_SANITIZE MATCHES "address")
  set(tests_left_out "-tce=memory plan: within a factor*,logit_lens: it takes at most*")
elseif(ORRERY_SANITIZE STREQUAL "thread")
  set(tests_left_out "-sfe=*/tests/cuda/attention/*,*/tests/cuda/matmul/*,*/tests/cuda/loops/*"
                     "-tce=attention: combinations*,attention: every combination*,attention agrees with a plain \
loop*,every registered case*,matmul: sizes near*,products in f32 and bf16 agree*,row sums and output variances*,every \
gradient case runs in bf16*,a span does not find*,a span grows over*,dropout of weights acts*")
endif()

# orrery_add_test_program(NAME folder libraries...): one program for all *_test.cpp of a folder.
function(orrery_add_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "LABEL" "FILES;LIBRARIES")
  if(NOT test_FILES)
    return()
  endif()
  add_executable(${name} ${test_FILES} $<TARGET_OBJECTS:test_main>)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(${name} SYSTEM PRIVATE "${ORRERY_DOCTEST_INCLUDE}")
  target_compile_definitions(${name} PRIVATE "ORRERY_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  # Half the time to compile.  References are computed at -O1; there g++ joins products and sums only with the second
  # flag, and some tests count ULP.
  set(flags -O1 -fexpensive-optimizations)
  if(test_LABEL MATCHES "^(models|examples)$")
    set(flags -O0)
  endif()
  target_compile_options(${name} PRIVATE
    "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:${flags}>")
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} Threads::Threads)
  orrery_add_formulas(${name} ${test_FILES})
  add_test(NAME ${name} COMMAND ${name} ${tests_left_out})
  set_tests_properties(${name} PROPERTIES LABELS ${test_LABEL} TIMEOUT 1800)
endfunction()

add_library(test_main OBJECT tests/support/main.cpp tests/support/message.cpp tests/support/text.cpp)
target_include_directories(test_main PRIVATE "${PROJECT_SOURCE_DIR}")
target_include_directories(test_main SYSTEM PRIVATE "${ORRERY_DOCTEST_INCLUDE}")
target_compile_definitions(test_main PRIVATE "ORRERY_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\""
                                             $<$<BOOL:${ORRERY_CUDA}>:ORRERY_CUDA_BUILD>)

# The kernels on the CPU: engine, nn, models and cuda once more, with the emulation's <cuda_runtime.h>.  No program
# links both builds, because they define the same names.  With ORRERY_CUDA=ON the same tests run on the GPU.
if(ORRERY_EMULATE_CUDA AND NOT ORRERY_CUDA)
  file(GLOB support CONFIGURE_DEPENDS tests/support/*.cpp)
  list(FILTER support EXCLUDE REGEX "/(main|message|text)\\.cpp$")
  set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX)
  # For tests/support/sectors.h: disables optimizations that merge or split the loads of a thread.
  set(watched -O2 -fno-tree-vectorize -fno-store-merging -fno-tree-sra -fsanitize=kernel-address
              -U__SANITIZE_ADDRESS__ --param=asan-stack=0 --param=asan-globals=0
              --param=asan-instrumentation-with-call-threshold=0)
  # Halves the compile time, as for the tests themselves; the other files have the flags of the libraries.
  set(of_kernels -O1 -fexpensive-optimizations)
  if(ORRERY_WATCH_ACCESSES)
    set(of_kernels ${watched})
  endif()
  # A target of their own: options of single files would stand in the flags of orrery_core, too, and a new file would
  # compile all of it again.
  orrery_find_formulas(kernels ${core_sources} ${model_members})
  set(others ${core_sources} ${model_members})
  list(REMOVE_ITEM others ${kernels})
  add_library(emulated_kernels OBJECT ${kernels} ${cuda_sources})
  target_compile_options(emulated_kernels PRIVATE -xc++ "$<$<CONFIG:Release>:${of_kernels}>")
  set_target_properties(emulated_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
  add_library(orrery_emulated SHARED ${others} $<TARGET_OBJECTS:emulated_kernels> $<TARGET_OBJECTS:models_objects>
                                     "${source_hash}" ${support})
  add_dependencies(orrery_emulated orrery_source_hash)
  foreach(target emulated_kernels orrery_emulated)
    orrery_describe_library(${target})
    target_include_directories(${target} BEFORE PUBLIC "${PROJECT_SOURCE_DIR}/tests/support")
    target_compile_definitions(${target} PUBLIC EMULATE_CUDA)
    orrery_link_core_dependencies(${target})
    orrery_link_models_dependencies(${target})
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_link_options(orrery_emulated PUBLIC "-Wl,-T,${PROJECT_SOURCE_DIR}/tests/support/launch_bounds.ld")
  endif()
  if(ORRERY_SANITIZE STREQUAL "thread")  # the emulation's scheduler reports the order of its threads to ThreadSanitizer
    set_source_files_properties(${support} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
endif()

# With sanitizers, all tests use this one build, because it contains all the others' code.
set(tested_core orrery_core)
set(tested_models orrery_models)
if(ORRERY_SANITIZE AND TARGET orrery_emulated)
  set(tested_core orrery_emulated)
  set(tested_models orrery_emulated)
endif()

foreach(layer engine nn models)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS tests/${layer}/*_test.cpp)
  if(layer STREQUAL models)
    if(TARGET orrery_models)
      orrery_add_test_program(models_tests LABEL models FILES ${files}
                       LIBRARIES ${tested_models} nlohmann_json::nlohmann_json ZLIB::ZLIB
                              "${ORRERY_SENTENCEPIECE_LIBRARY}")
    endif()
  else()
    orrery_add_test_program(${layer}_tests LABEL ${layer} FILES ${files} LIBRARIES ${tested_core})
  endif()
endforeach()

file(GLOB files CONFIGURE_DEPENDS tests/examples/*_test.cpp)
if(TARGET orrery)
  list(APPEND files examples/orrery/terminal/json_output.cpp examples/orrery/terminal/view_json.cpp)
  orrery_add_test_program(examples_tests LABEL examples FILES ${files}
                          LIBRARIES orrery_models nlohmann_json::nlohmann_json)
  if(TARGET examples_tests)
    target_compile_definitions(examples_tests PRIVATE "ORRERY_PROGRAM=\"$<TARGET_FILE:orrery>\"")
    add_executable(wrong_derivative tests/examples/wrong_derivative.cpp examples/orrery/commands/gradcheck.cpp
                                    examples/orrery/commands/gradient_diagnosis.cpp
                                    examples/orrery/commands/pointwise_check.cpp examples/orrery/terminal/arguments.cpp
                                    examples/orrery/terminal/help_text.cpp examples/orrery/terminal/messages.cpp
                                    examples/orrery/terminal/process_io.cpp examples/orrery/terminal/progress.cpp
                                    examples/orrery/terminal/style.cpp examples/orrery/terminal/table.cpp)
    target_link_libraries(wrong_derivative PRIVATE orrery_models)
    orrery_add_formulas(wrong_derivative tests/examples/wrong_derivative.cpp)
    target_compile_definitions(examples_tests PRIVATE "WRONG_DERIVATIVE_PROGRAM=\"$<TARGET_FILE:wrong_derivative>\"")
    add_executable(random_settings tests/examples/random_settings.cpp)
    target_link_libraries(random_settings PRIVATE orrery_models)
    target_compile_definitions(examples_tests PRIVATE "RANDOM_SETTINGS=\"$<TARGET_FILE:random_settings>\"")
    target_compile_definitions(examples_tests PRIVATE "GPT_EXAMPLE=\"$<TARGET_FILE:05_gpt>\"")
    add_dependencies(examples_tests orrery wrong_derivative random_settings 05_gpt)
  endif()
  add_test(NAME add_file COMMAND sh "${PROJECT_SOURCE_DIR}/tests/add_file_test.sh" "${PROJECT_BINARY_DIR}")
  set_tests_properties(add_file PROPERTIES LABELS examples TIMEOUT 900)
endif()

# Fuzzing of formats (tests/fuzz/format.h).  With libFuzzer: -DORRERY_LIBFUZZER=ON, see tests/fuzz.sh.
if(TARGET orrery_models)
  file(GLOB formats CONFIGURE_DEPENDS tests/fuzz/*.cpp)
  list(FILTER formats EXCLUDE REGEX "/(driver|libfuzzer|[a-z_]*_test)\\.cpp$")
  set(driver tests/fuzz/driver.cpp)
  if(ORRERY_LIBFUZZER)
    set(driver tests/fuzz/libfuzzer.cpp)
  endif()
  add_executable(orrery_fuzz ${formats} ${driver} examples/orrery/terminal/arguments.cpp
                             examples/orrery/terminal/style.cpp examples/orrery/terminal/table.cpp
                             examples/orrery/commands/formula_source.cpp)
  target_include_directories(orrery_fuzz PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(orrery_fuzz PRIVATE ${tested_models} nlohmann_json::nlohmann_json)
  orrery_add_formulas(orrery_fuzz ${formats})
  if(ORRERY_LIBFUZZER)
    target_link_options(orrery_fuzz PRIVATE -fsanitize=fuzzer)
  endif()
  file(GLOB files CONFIGURE_DEPENDS tests/fuzz/*_test.cpp)
  orrery_add_test_program(fuzz_tests LABEL examples FILES ${files})
  target_compile_definitions(fuzz_tests PRIVATE "ORRERY_FUZZ_PROGRAM=\"$<TARGET_FILE:orrery_fuzz>\"")
  add_dependencies(fuzz_tests orrery_fuzz)
endif()

# Fault injection (tests/fault_injection/interposer.cpp).  A sanitizer would bring its own allocator, too.
if(TARGET orrery AND NOT ORRERY_SANITIZE)
  add_library(fault_injection_interposer SHARED tests/fault_injection/interposer.cpp)
  target_link_libraries(fault_injection_interposer PRIVATE ${CMAKE_DL_LIBS})
  file(GLOB files CONFIGURE_DEPENDS tests/fault_injection/*.cpp)
  list(FILTER files EXCLUDE REGEX "/interposer\\.cpp$")
  orrery_add_test_program(fault_injection_tests LABEL examples FILES ${files} LIBRARIES nlohmann_json::nlohmann_json)
  target_compile_definitions(fault_injection_tests PRIVATE "ORRERY_PROGRAM=\"$<TARGET_FILE:orrery>\""
                                                    "FAULT_INJECTION_INTERPOSER=\"$<TARGET_FILE:fault_injection_interposer>\"")
  add_dependencies(fault_injection_tests orrery fault_injection_interposer)
endif()

file(GLOB files CONFIGURE_DEPENDS tests/*_test.cpp)
orrery_add_test_program(rules_tests LABEL rules FILES ${files})

# The numbered examples on a device: on a GPU in a CUDA build, else on the emulated one.
if(ORRERY_EXAMPLES AND (ORRERY_CUDA OR TARGET orrery_emulated))
  file(GLOB numbered CONFIGURE_DEPENDS examples/[0-9]*.cpp)
  foreach(file IN LISTS numbered)
    get_filename_component(name "${file}" NAME_WE)
    set(program ${name})
    if(NOT ORRERY_CUDA)
      set(program ${name}_emulated)
      add_executable(${program} "${file}")
      target_link_libraries(${program} PRIVATE orrery_emulated)
    endif()
    add_test(NAME example_${name}_on_device COMMAND ${program} cuda ${arguments_of_${name}}
             WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(example_${name}_on_device PROPERTIES LABELS cuda TIMEOUT 600)
  endforeach()
endif()

add_test(NAME api COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/api.py" --check)
set_tests_properties(api PROPERTIES LABELS rules TIMEOUT 120)

if(TARGET orrery AND NOT ORRERY_SANITIZE)
  add_test(NAME pages COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/pages.py" $<TARGET_FILE:orrery>)
  set_tests_properties(pages PROPERTIES LABELS examples TIMEOUT 1800)
endif()

if(ORRERY_INSTALL AND TARGET orrery)
  add_test(NAME package COMMAND sh "${PROJECT_SOURCE_DIR}/tests/package.sh" "${PROJECT_BINARY_DIR}")
  set_tests_properties(package PROPERTIES LABELS examples TIMEOUT 900)
endif()

add_test(NAME architectures COMMAND ${CMAKE_COMMAND} -P
                                    "${PROJECT_SOURCE_DIR}/tests/cuda/runtime/architectures.cmake")
set_tests_properties(architectures PROPERTIES LABELS examples TIMEOUT 120)

add_test(NAME source_hash COMMAND ${CMAKE_COMMAND} -P "${PROJECT_SOURCE_DIR}/tests/models/source_hash.cmake")
set_tests_properties(source_hash PROPERTIES LABELS models TIMEOUT 120)

add_test(NAME gpu_plan COMMAND sh "${PROJECT_SOURCE_DIR}/tests/gpu_plan.sh")
set_tests_properties(gpu_plan PROPERTIES LABELS examples TIMEOUT 120)

file(GLOB_RECURSE files CONFIGURE_DEPENDS tests/cuda/*_test.cpp)
if(ORRERY_CUDA)
  orrery_add_test_program(cuda_tests LABEL gpu FILES ${files} LIBRARIES orrery_models)
elseif(TARGET orrery_emulated)
  orrery_add_test_program(cuda_tests LABEL cuda FILES ${files} LIBRARIES orrery_emulated)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ORRERY_SANITIZE)
    set_source_files_properties(tests/cuda/runtime/coalescing_test.cpp PROPERTIES
      COMPILE_OPTIONS "${watched}" COMPILE_DEFINITIONS ORRERY_WATCHES_ACCESSES)
  endif()
  # Repeats tests with sums as on a GPU, which truncates; the emulation rounds to nearest.
  if(NOT ORRERY_SANITIZE)
    add_test(NAME cuda_tests_truncating COMMAND cuda_tests "-sf=*/cuda/attention/tensor_core_test.cpp,\
*/cuda/matmul/*,*/cuda/runtime/instructions_test.cpp")
    set_tests_properties(cuda_tests_truncating PROPERTIES LABELS cuda TIMEOUT 1800 ENVIRONMENT_MODIFICATION
      "ORRERY_TRUNCATING_TENSOR_CORES=set:1;ORRERY_SHARED_MEMORY=unset:")
    # Repeats products as on GPUs without warp groups, with their 99 KB of shared memory, and launches without an
    # early start.
    add_test(NAME cuda_tests_86 COMMAND cuda_tests "-sf=*/cuda/matmul/*,*/cuda/runtime/early_launch_test.cpp")
    set_tests_properties(cuda_tests_86 PROPERTIES LABELS cuda TIMEOUT 1800 ENVIRONMENT_MODIFICATION
      "ORRERY_EMULATED_ARCHITECTURE=set:86;ORRERY_SHARED_MEMORY=unset:")
  endif()
  # Records the launches of a step and of the benchmarks, for tests/gpu_static/model.py.
  add_executable(gpu_launches EXCLUDE_FROM_ALL tests/gpu_static/launches.cpp tests/gpu_static/benchmarks.cpp
                              tests/gpu_static/recorder.cpp examples/orrery/commands/bench_operations.cpp
                              examples/orrery/commands/bench_train.cpp examples/orrery/terminal/style.cpp
                              examples/orrery/terminal/table.cpp)
  target_link_libraries(gpu_launches PRIVATE orrery_emulated ${CMAKE_DL_LIBS})
  # The program with the emulated GPU, for tests/gpu.sh: files with formulas are compiled with the emulation's
  # headers, the other objects are the program's.
  if(TARGET orrery)
    add_executable(orrery_on_emulation EXCLUDE_FROM_ALL ${program_members} $<TARGET_OBJECTS:program_objects>)
    target_link_libraries(orrery_on_emulation PRIVATE orrery_emulated CLI11::CLI11 nlohmann_json::nlohmann_json)
  endif()
endif()

# The programs that tests/run.sh builds before a commit: all except those of the emulation.
add_custom_target(quick_tests)
foreach(target orrery engine_tests nn_tests models_tests examples_tests fuzz_tests fault_injection_tests rules_tests)
  if(TARGET ${target})
    add_dependencies(quick_tests ${target})
  endif()
endforeach()
foreach(file IN LISTS numbered)
  get_filename_component(name "${file}" NAME_WE)
  add_dependencies(quick_tests ${name})
endforeach()

# Tests run in parallel, the longest first.  COST: seconds on a slow machine.
foreach(cost examples_tests=480 models_tests=300 cuda_tests=300 add_file=200 cuda_tests_truncating=180
             pages=150 fault_injection_tests=100 package=90)
  string(REPLACE "=" ";" cost "${cost}")
  list(GET cost 0 test)
  if(TEST ${test})
    list(GET cost 1 seconds)
    set_tests_properties(${test} PROPERTIES COST ${seconds})
  endif()
endforeach()
