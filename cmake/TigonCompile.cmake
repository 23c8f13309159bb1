# How every translation unit is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)  # CMake 3.25 does not know how to ask nvcc for it: see tigon_flags
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(TIGON_WERROR "Treat warnings as errors" ON)
set(TIGON_SANITIZE "" CACHE STRING "Value of -fsanitize= for all targets")

find_program(TIGON_CCACHE ccache)
if(TIGON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TIGON_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TIGON_CCACHE})
endif()

if(TIGON_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 100-real 120)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
endif()

# Interface of flags for our own code; what is included from outside is a system header.
add_library(tigon_flags INTERFACE)
target_compile_options(tigon_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers>
  # Products are fused with sums where the source says so (MulAdd), not where a compiler likes to.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TIGON_WERROR}>>:-Werror>
  # CMake 3.25 passes no -std to nvcc for standard 20, so it is spelt out.
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --extended-lambda
    -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TIGON_WERROR}>>:-Werror=all-warnings>)
if(TIGON_SANITIZE)
  target_compile_options(tigon_flags INTERFACE -fsanitize=${TIGON_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tigon_flags INTERFACE -fsanitize=${TIGON_SANITIZE})
endif()
