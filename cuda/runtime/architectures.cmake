# The GPU architectures that nvcc compiles for.

# orrery_default_architectures(variable): those of the GPUs present; without a GPU, one per
# generation. 80 also runs on 86 and 89, 90a only on 9.0, PTX of 90 on 100 and 103, PTX of 120 on
# later GPUs. 90a, unlike 90, has warp group instructions (cuda/matmul/warp_group.cuh).
function(orrery_default_architectures variable)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE cards ERROR_QUIET RESULT_VARIABLE result)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" cards "${cards}")
  if(cards)
    list(REMOVE_DUPLICATES cards)
    list(TRANSFORM cards REPLACE "\\." "")
    list(TRANSFORM cards REPLACE "^90$" "90a")
    list(TRANSFORM cards APPEND "-real")
    set(${variable} ${cards} PARENT_SCOPE)
    return()
  endif()
  set(compiler nvcc)
  foreach(given IN ITEMS "$ENV{CUDACXX}" "${CMAKE_CUDA_COMPILER}")
    if(given)
      set(compiler "${given}")
    endif()
  endforeach()
  execute_process(COMMAND ${compiler} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET RESULT_VARIABLE result)
  set(architectures 80-real 90a-real 90-virtual 120)
  if(known AND NOT known MATCHES "compute_120")  # nvcc before 12.8
    list(REMOVE_ITEM architectures 120)
  endif()
  set(${variable} ${architectures} PARENT_SCOPE)
endfunction()

# orrery_nvcc_architectures(variable architectures...): nvcc's options for values of
# CMAKE_CUDA_ARCHITECTURES, with PTX for values that include it.
function(orrery_nvcc_architectures variable)
  set(options)
  foreach(architecture IN LISTS ARGN)
    string(REGEX REPLACE "-(real|virtual)$" "" number "${architecture}")
    if(NOT number MATCHES "^[0-9]")  # native, all
      list(APPEND options "-arch=${number}")
      continue()
    endif()
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND options "-gencode=arch=compute_${number},code=sm_${number}")
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND options "-gencode=arch=compute_${number},code=compute_${number}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES options)
  set(${variable} ${options} PARENT_SCOPE)
endfunction()
