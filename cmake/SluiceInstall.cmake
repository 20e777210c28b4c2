# cmake --install BUILD --prefix P: the library for find_package(Sluice) (docs/library.md).
#
#   P/include/sluice/      public headers, laid out as in the sources: #include "runtime/engine/engine.hpp"
#   P/lib/                 static libraries, libsluice_cuda.so and libsluice_parquet.so where they were built
#   P/lib/cmake/Sluice/    SluiceConfig.cmake and what it reads
if(NOT SLUICE_TORCH)
  return()
endif()
include(CMakePackageConfigHelpers)

# Parts of programs rather than of the library: nothing that is installed links them.
set(not_installed sluice_bench sluice_doctor sluice_cuda_kernels)

get_property(libraries GLOBAL PROPERTY SLUICE_LIBRARIES)
list(REMOVE_ITEM libraries ${not_installed})
foreach(library IN LISTS libraries)
  string(REPLACE "sluice_" "" name "${library}")
  set_target_properties(${library} PROPERTIES EXPORT_NAME "${name}")
  target_compile_features(${library} INTERFACE cxx_std_20)
endforeach()

add_library(sluice_umbrella INTERFACE)
set_target_properties(sluice_umbrella PROPERTIES EXPORT_NAME sluice)
target_link_libraries(sluice_umbrella INTERFACE sluice_run sluice_launch sluice_configs)

# Built with the program, whether the program links them or not: ./sluice train is enough for an installation.
set(installed ${libraries})
set(modules)
foreach(module sluice_cuda_module sluice_parquet_module)
  if(TARGET ${module})
    list(APPEND modules ${module})
  endif()
endforeach()
list(APPEND installed ${modules})
add_dependencies(sluice_cli ${installed})

# The first rule: nothing is copied where something is not built.
list(TRANSFORM installed REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE installed_files)
install(CODE "foreach(file IN ITEMS ${installed_files})
  if(NOT EXISTS \"\${file}\")
    message(FATAL_ERROR \"\${file} is not built, and nothing was installed; run ./sluice build sluice_cli first\")
  endif()
endforeach()")

install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION share/doc/Sluice)
install(TARGETS ${libraries} sluice_umbrella EXPORT Sluice
  ARCHIVE DESTINATION lib
  INCLUDES DESTINATION include/sluice)
install(EXPORT Sluice NAMESPACE Sluice:: FILE SluiceExport.cmake DESTINATION lib/cmake/Sluice)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION lib)
endif()

# Not public: programs, one implementation's inside, what only one instruction set or CUDA compiles.
install(DIRECTORY base kernels offload parallel zero runtime configs DESTINATION include/sluice
  FILES_MATCHING PATTERN "*.hpp"
  PATTERN "runtime/cli" EXCLUDE
  PATTERN "runtime/bench" EXCLUDE
  PATTERN "kernels/cuda" EXCLUDE
  REGEX "model/device/(cuda_kernels|fp8_product|kernel_calls|product_attention)\\.hpp$" EXCLUDE
  PATTERN "*_bridge.hpp" EXCLUDE
  PATTERN "*_avx*.hpp" EXCLUDE
  PATTERN "*_impl.hpp" EXCLUDE
  PATTERN "simd_*.hpp" EXCLUDE
  REGEX "doctor/(comm_rates|cuda_gpu|disk_rates|doctor|findings|gpu_(device|facts|rates)|machine_facts|memory_rates|nvme_bench_json|pci_link)\\.hpp$" EXCLUDE
  REGEX "comm/(host_(communicator|peers|segment|plan|record|transfer)|socket|stream_store|cuda_factories|nccl_ticket|ordered_add_(body|cuda)|own_stream)\\.hpp$" EXCLUDE)

configure_package_config_file(cmake/SluiceConfig.cmake.in SluiceConfig.cmake INSTALL_DESTINATION lib/cmake/Sluice)
write_basic_package_version_file(SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/SluiceConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/SluiceConfigVersion.cmake"
              cmake/FindTorchLibs.cmake
  DESTINATION lib/cmake/Sluice)
