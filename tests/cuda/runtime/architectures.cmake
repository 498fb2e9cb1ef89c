# cmake -P tests/cuda/runtime/architectures.cmake: the GPUs that a build targets by default.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../../cuda/runtime/architectures.cmake")

function(expect what found expected)
  if(NOT found STREQUAL expected)
    message(SEND_ERROR "${what}: ${found}, not ${expected}")
  endif()
endfunction()

# program(NAME text): adds a program to the path that prints the text.
string(RANDOM LENGTH 12 name)
set(folder "/tmp/orrery-architectures-${name}")
set(ENV{PATH} "${folder}:$ENV{PATH}")
set(ENV{CUDACXX} "")
function(program name text)
  file(WRITE "${folder}/${name}" "#!/bin/sh\nprintf '${text}\\n'\n")
  file(CHMOD "${folder}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

program(nvidia-smi "No devices were found")
program(nvcc "compute_80\\ncompute_90\\ncompute_120")
orrery_default_architectures(found)
expect("without a GPU" "${found}" "80-real;90a-real;90-virtual;120")
program(nvcc "compute_80\\ncompute_90")
orrery_default_architectures(found)
expect("an older nvcc" "${found}" "80-real;90a-real;90-virtual")
program(nvidia-smi "8.0")
orrery_default_architectures(found)
expect("with a GPU" "${found}" "80-real")
program(nvidia-smi "9.0\\n12.0\\n9.0")
orrery_default_architectures(found)
expect("with several GPUs" "${found}" "90a-real;120-real")
file(REMOVE_RECURSE "${folder}")

orrery_nvcc_architectures(found 80-real 90a-real 90 120-virtual)
expect("options" "${found}" "-gencode=arch=compute_80,code=sm_80;-gencode=arch=compute_90a,code=sm_90a;\
-gencode=arch=compute_90,code=sm_90;\
-gencode=arch=compute_90,code=compute_90;-gencode=arch=compute_120,code=compute_120")
orrery_nvcc_architectures(found native)
expect("options" "${found}" "-arch=native")
