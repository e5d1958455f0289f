/* The operations, sizes and JSON lines of ranks.cc by an MPI library:  mpirun -n N mpi [SECONDS-PER-CASE [OPERATION]] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, ALLTOALL, BROADCAST, OPERATIONS, PARTS = 9 };
static const char* const names[OPERATIONS] = {"allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast"};
static const int sizes[] = {4, 64, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};

static void call(int operation, float* in, float* out, int count, int n) {
  MPI_Comm world = MPI_COMM_WORLD;
  switch (operation) {
    case ALLREDUCE: MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, world); break;
    case ALLGATHER: MPI_Allgather(in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, count / n, MPI_FLOAT, MPI_SUM, world); break;
    case ALLTOALL: MPI_Alltoall(in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT, world); break;
    case BROADCAST: MPI_Bcast(out, count, MPI_FLOAT, 0, world); break;
  }
}

static double seconds_of(int operation, float* in, float* out, int count, int n, int iterations) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; i++) call(operation, in, out, count, n);
  return (MPI_Wtime() - begin) / iterations;
}

/* Pages that were never written are all the same page; a compiler makes malloc and memset such pages again. */
static float* zeros(size_t bytes) {
  volatile char* memory = malloc(bytes);
  for (size_t i = 0; i < bytes; i += 4096) memory[i] = 0;
  return (float*)memory;
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 0.2;
  int rank, n;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  float* in = zeros(1 << 26);
  float* out = zeros(1 << 26);
  for (int operation = 0; operation < OPERATIONS; operation++) {
    if (argc > 2 && *argv[2] && strcmp(argv[2], names[operation])) continue;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      const int blocks = operation != ALLREDUCE && operation != BROADCAST;
      const int count = sizes[s] / 4 < n && blocks ? n : sizes[s] / 4;
      seconds_of(operation, in, out, count, n, 3);
      const double once = seconds_of(operation, in, out, count, n, 3);
      int iterations = (int)(seconds / PARTS / (once > 1e-9 ? once : 1e-9));
      iterations = iterations < 3 ? 3 : iterations > 20000 ? 20000 : iterations;
      MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
      double best = 1e9;
      for (int part = 0; part < PARTS; part++) {
        const double took = seconds_of(operation, in, out, count, n, iterations);
        if (took < best) best = took;
      }
      if (rank == 0) {
        printf("{\"bench\": \"coll\", \"library\": \"openmpi\", \"kind\": \"private\", \"op\": \"%s\", \"ranks\": %d, "
               "\"bytes\": %d, \"us\": %.3f}\n", names[operation], n, count * 4, best * 1e6);
        fflush(stdout);
      }
    }
  }
  MPI_Finalize();
  return 0;
}
