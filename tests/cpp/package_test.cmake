# Installs libtigon into an empty prefix, builds examples/cpp against it and reads what it prints.
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component cpp)
# Moved after installation: the package must not remember where it was.
file(RENAME ${WORK}/prefix ${WORK}/moved)
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/moved ${flags})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/rms_norm)

set(expected
  " 0.3651  0.7303  1.0954  1.4606\n-1.0000  1.0000 -1.0000  1.0000\n 0.0000  0.0000  0.0000  2.0000\n"
  "rms_norm_forward: weight must be [4], got [3]\n")
string(CONCAT expected ${expected})
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "expected\n${expected}got\n${output}")
endif()
