#include "examples/orrery/terminal/version_text.h"

#include "engine/attention/attention.h"
#include "engine/matmul/matmul.h"
#include "engine/system/version.h"
#include "engine/types/check.h"
#include "models/source_hash.h"

namespace orrery::program {

std::string version_text() {
  const Build b = build();
  return text("orrery ", b.version, "\nsources           ", models::source_hash, "\ncompiler          ", b.compiler,
              "\nflags             ", b.flags, "\ncompiled for      ", b.instruction_sets, "\nthis processor    ",
              processor_instruction_sets(), "\nfused attention   ", attention_instruction_set(), "\nBLAS              ",
              blas_description(), "\nCUDA              ", b.cuda ? "yes" : "no (configure with -DORRERY_CUDA=ON)");
}

}  // namespace orrery::program
