# Which cards nvcc compiles for.

# orrery_default_architectures(variable): the cards that are there; without one, one of each generation.  Code for 80
# runs on 86 and 89 as well, that for 90a on 9.0 alone, PTX of 90 on 100 and 103; what comes later than 120 takes the PTX
# of that.  90a and not 90: it has the instructions of warp groups (cuda/matmul/warp_group.cuh).
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

# orrery_nvcc_architectures(variable architectures...): nvcc's options for what CMAKE_CUDA_ARCHITECTURES says, with PTX
# where it stands for PTX.
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
