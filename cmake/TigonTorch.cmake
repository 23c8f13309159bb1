# Headers and libraries of the torch that `Python_EXECUTABLE` imports. torch's own CMake package is
# not used: it wants the CUDA toolkit that torch was built with, and links far more than the
# stable ABI needs.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
  OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE torch_missing ERROR_QUIET)
if(torch_missing)
  message(FATAL_ERROR
    "${Python_EXECUTABLE} has no torch: install the package torch (2.10 or newer) into it, "
    "choose another Python with -DPython_EXECUTABLE=..., or configure with -DTIGON_TORCH=OFF.")
endif()

set(TIGON_TORCH_INCLUDES ${torch_root}/include)
find_library(TIGON_LIBTORCH_CPU torch_cpu PATHS ${torch_root}/lib NO_DEFAULT_PATH REQUIRED)
set(TIGON_TORCH_CPU_LIBRARIES ${TIGON_LIBTORCH_CPU})
if(TIGON_CUDA)
  find_library(TIGON_LIBTORCH_CUDA torch_cuda PATHS ${torch_root}/lib NO_DEFAULT_PATH)
  if(NOT TIGON_LIBTORCH_CUDA)
    message(FATAL_ERROR "${torch_root} is a torch without CUDA: configure the preset cpu.")
  endif()
  set(TIGON_TORCH_CUDA_LIBRARIES ${TIGON_LIBTORCH_CPU} ${TIGON_LIBTORCH_CUDA})
endif()
