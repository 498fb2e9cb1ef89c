# orrery_hash_sources(OUTPUT): OUTPUT is a source file that defines source_hash (models/source_hash.h). It is written
# at configure time, and again by the target orrery_source_hash when one of the sources has changed since.
# As a script, cmake -DROOT=FOLDER -DCUDA=ON|OFF -DOUTPUT=FILE -P source_hash.cmake writes the file.

set(orrery_hashed engine/*.h engine/*.cpp nn/*.h nn/*.cpp models/*.h models/*.cpp)
set(orrery_hashed_for_cuda cuda/*.h cuda/*.cuh cuda/*.cu)

function(orrery_hash_sources output)
  set(patterns ${orrery_hashed})
  if(ORRERY_CUDA)
    list(APPEND patterns ${orrery_hashed_for_cuda})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  set(script "${PROJECT_SOURCE_DIR}/models/source_hash.cmake")
  set(command "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" "-DCUDA=${ORRERY_CUDA}" "-DOUTPUT=${output}" -P "${script}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
  add_custom_command(OUTPUT "${output}" COMMAND ${command} COMMAND "${CMAKE_COMMAND}" -E touch "${output}" DEPENDS ${sources} "${script}" VERBATIM
                     COMMENT "Hashing the sources that determine results")
  add_custom_target(orrery_source_hash DEPENDS "${output}")
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
set(patterns ${orrery_hashed})
if(CUDA)
  list(APPEND patterns ${orrery_hashed_for_cuda})
endif()
list(TRANSFORM patterns PREPEND "${ROOT}/")
file(GLOB_RECURSE files ${patterns})
# Literals may contain // and are kept. -z: sed reads a file as one line.
set(literal [["([^"\\\n]|\\.)*"|'(\\.[0-9a-fx]*|[^'\\\n])']])
set(comment [[//[^\n]*|/\*([^*]|\*+[^*/])*\*+/]])
execute_process(COMMAND sed -zE "s@(${literal})|${comment}@\\1@g; s/[ \\t\\r\\n]+//g" ${files} OUTPUT_VARIABLE text
                COMMAND_ERROR_IS_FATAL ANY)
string(SHA256 hash "${text}")
string(SUBSTRING "${hash}" 0 12 hash)
# file(CONFIGURE) keeps an unchanged file's time, so a second configuration compiles nothing.
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT "#include \"models/source_hash.h\"

namespace orrery::models {
const char* const source_hash = \"${hash}\";
}  // namespace orrery::models
")
