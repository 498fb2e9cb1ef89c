# For the scripts that train on several ranks, which include it with `orrery`, the program, set: the environment of
# Open MPI, the names of the MPIs that are installed and that the build is for, and the counts of the last line.

# As root, more ranks than cores, no ssh in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=false

mpis=
for mpi in openmpi mpich; do
  if command -v mpirun.$mpi > /dev/null && [ -e "${orrery%/*}/liborrery_$mpi.so" ]; then mpis="$mpis $mpi"; fi
done

passed=0 failed=0
judge() {  # WHAT STATUS
  if [ "$2" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $1"
  fi
}
