# Executes a session's calls against a driver.
add_library(worker_session STATIC
  array_size.cpp run_array.cpp run_cluster.cpp run_green_context.cpp run_texture_reference.cpp
  completions.cpp conversation.cpp copy_out.cpp copy_slots.cpp device_arena.cpp device_turns.cpp driver.cpp driver_log.cpp executor.cpp executor_contexts.cpp export_door.cpp export_table.cpp graph_handles.cpp graph_table.cpp host_calls.cpp image_cache.cpp image_check.cpp image_content.cpp images.cpp lane_pool.cpp lease_work.cpp limit_teller.cpp memory_mover.cpp outlet.cpp parking.cpp process_checkpoint.cpp printed_output.cpp run_completion.cpp run_context.cpp
  run_graph.cpp run_graph_exec.cpp run_graph_read.cpp run_images.cpp run_launch.cpp run_logical_endpoint.cpp run_multicast.cpp
  run_memory.cpp run_pages.cpp run_rows.cpp run_sharing.cpp run_virtual_memory.cpp run_waits.cpp session.cpp staging.cpp
  device_bytes.cpp image_folder.cpp session_image.cpp session_journal.cpp session_move.cpp session_resume.cpp session_transfer.cpp session_writer.cpp
  ${CMAKE_BINARY_DIR}/generated/dispatch_table.cpp ${CMAKE_BINARY_DIR}/generated/move_rules.cpp)
set_source_files_properties(${CMAKE_BINARY_DIR}/generated/dispatch_table.cpp ${CMAKE_BINARY_DIR}/generated/move_rules.cpp PROPERTIES GENERATED TRUE SKIP_UNITY_BUILD_INCLUSION TRUE)
compile_in_batches(worker_session)
add_dependencies(worker_session protocol_generated)
# Enumerations of cuda.h come from the client as numbers, and the driver refuses what it does not know. Compilers take
# them for numbers too (-fno-strict-enums); only the sanitizers ask for more.
target_compile_options(worker_session PUBLIC -fno-sanitize=enum)
target_link_libraries(worker_session PUBLIC gpupool_enforcer gpupool_graphs gpupool_digest gpupool_image gpupool_protocol worker_shell)

if(GPUPOOL_TESTS)
  add_library(worker_test_driver MODULE test_driver.cpp test_driver_fabric.cpp test_driver_images.cpp test_driver_memory.cpp)
  target_compile_options(worker_test_driver PRIVATE -fno-sanitize=enum)
  add_executable(worker_session_test
    array_size_test.cpp device_pairs_test.cpp driver_log_test.cpp device_resources_test.cpp memory_mover_test.cpp parking_test.cpp residence_test.cpp
    cached_image_test.cpp export_door_test.cpp export_table_test.cpp handle_table_test.cpp image_cache_test.cpp image_check_test.cpp limit_teller_test.cpp session_completion_test.cpp session_fabric_test.cpp session_lanes_test.cpp session_mutation_test.cpp
    session_image_test.cpp session_journal_test.cpp session_test.cpp)
  add_dependencies(worker_session_test worker_test_driver protocol_generated)
  target_compile_definitions(worker_session_test PRIVATE GPUPOOL_TEST_DRIVER="$<TARGET_FILE:worker_test_driver>")
  target_link_libraries(worker_session_test PRIVATE doctest_main protocol_random_bodies worker_session)
  add_test(NAME worker_session COMMAND worker_session_test)
  # Both ends, and connections between them that break.
  add_executable(worker_conversation_test conversation_test.cpp)
  add_dependencies(worker_conversation_test worker_test_driver protocol_generated)
  target_compile_definitions(worker_conversation_test PRIVATE GPUPOOL_TEST_DRIVER="$<TARGET_FILE:worker_test_driver>")
  target_link_libraries(worker_conversation_test PRIVATE doctest_main client_core worker_session)
  add_test(NAME worker_conversation COMMAND worker_conversation_test)
endif()
