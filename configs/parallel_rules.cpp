#include "configs/parallel_rules.hpp"

#include <string>
#include <utility>

namespace sluice {
namespace {

std::string decimal(std::int64_t value) { return std::to_string(value); }

// "7 % 2 = 1"
std::string remainder(std::int64_t size, std::int64_t of) {
  return decimal(size) + " % " + decimal(of) + " = " + decimal(size % of);
}

class ParallelRules {
 public:
  explicit ParallelRules(const RunConfig& run)
      : run_(run), mesh_(run.parallel), model_(with_defaults(run.model)) {}

  std::vector<BrokenRule> check_all() {
    check_sequence();
    if (mesh_.tensor > 1) check_tensor();
    check_schedule();
    if (mesh_.pipeline > 1) check_pipeline();
    if (mesh_.pipeline > 1 && !mesh_.stage_layers.empty()) check_stage_layers();
    check_nvme_gradients();
    return std::move(broken_);
  }

 private:
  void broken(std::string_view key, std::string what) { broken_.push_back({key, std::move(what)}); }
  // A rule that compares with a size of the model.
  void misfits(std::string_view key, std::string what) {
    broken_.push_back({key, std::move(what), true});
  }

  void check_sequence() {
    if (!mesh_.sequence || model_.seq % mesh_.tensor == 0) return;
    misfits("parallel.sequence",
            "model.seq must be a multiple of tensor: " + remainder(model_.seq, mesh_.tensor));
  }

  void must_divide(const std::string& what, std::int64_t size) {
    if (size % mesh_.tensor == 0) return;
    misfits("parallel.tensor",
            what + " must be a multiple of tensor: " + remainder(size, mesh_.tensor));
  }

  void check_tensor() {
    if (!model_.explicit_units) {
      broken("parallel.tensor", decimal(mesh_.tensor) +
                                    " ranks need model.explicit_units: true: the units of "
                                    "libtorch's autograd have all of a block");
    }
    if (run_.model.heads > 0) must_divide("model.heads", model_.heads);
    must_divide("model.hidden", model_.hidden);
    must_divide("model.ffn", model_.ffn);
    if (model_.kv_heads % mesh_.tensor != 0 && mesh_.tensor % model_.kv_heads != 0) {
      misfits("parallel.tensor",
              "one of model.kv_heads and tensor must be a multiple of the other: " +
                  remainder(model_.kv_heads, mesh_.tensor) + ", " +
                  remainder(mesh_.tensor, model_.kv_heads));
    }
    check_vocab();
  }

  void check_vocab() {
    if (model_.vocab == 0) return;
    const std::int64_t rows = vocab_rows(model_.vocab, mesh_.tensor);
    if (rows * (mesh_.tensor - 1) < model_.vocab) return;
    misfits("parallel.tensor",
            "the last rank must have words: (tensor - 1) x " + decimal(rows) +
                " rows < model.vocab does not hold: " + decimal(mesh_.tensor - 1) + " x " +
                decimal(rows) + " >= " + decimal(model_.vocab));
  }

  void check_schedule() {
    if (mesh_.pipeline == 1) return;
    const std::string schedule(name_of(mesh_.schedule));
    const bool interleaved = mesh_.schedule == PipelineSchedule::kInterleaved;
    if (interleaved && mesh_.virtual_stages == 1) {
      broken("parallel.schedule",
             "interleaved needs virtual_stages >= 2: 1 < 2; set parallel.virtual_stages, or take "
             "1f1b");
    }
    if (!interleaved && mesh_.virtual_stages > 1) {
      broken("parallel.virtual_stages", decimal(mesh_.virtual_stages) +
                                            " need parallel.schedule: interleaved, and it is " +
                                            schedule);
    }
    if (mesh_.schedule == PipelineSchedule::kZeroBubble && !model_.explicit_units) {
      broken("parallel.schedule",
             "zero_bubble needs model.explicit_units: true: libtorch's autograd makes the "
             "gradients of input and weights at once");
    }
  }

  void check_pipeline() {
    const std::int64_t units = model_.layers + 2;
    const std::int64_t chunks = std::int64_t{mesh_.pipeline} * mesh_.virtual_stages;
    if (units < chunks) {
      misfits("parallel.pipeline",
              "layers + 2 >= pipeline x virtual_stages (embedding, blocks and loss head; one unit "
              "or more in each piece) does not hold: " +
                  decimal(model_.layers) + " + 2 < " + decimal(mesh_.pipeline) + " x " +
                  decimal(mesh_.virtual_stages));
    }
    if (run_.train.accumulation_order == AccumulationOrder::kLayer) {
      broken("train.accumulation_order",
             "layer needs parallel.pipeline: 1: a stage that ran all micro-batches of a unit in a "
             "row would leave the others waiting; leave it out");
    }
  }

  void check_stage_layers() {
    const std::size_t count = mesh_.stage_layers.size();
    const std::int64_t chunks = std::int64_t{mesh_.pipeline} * mesh_.virtual_stages;
    if (static_cast<std::int64_t>(count) != chunks) {
      broken(
          "parallel.stage_layers",
          "needs a number for each of pipeline x virtual_stages pieces: " + std::to_string(count) +
              " != " + decimal(mesh_.pipeline) + " x " + decimal(mesh_.virtual_stages));
    }
    std::int64_t total = 0;
    std::string sum;
    for (const int layers : mesh_.stage_layers) {
      total += layers;
      sum += (sum.empty() ? "" : " + ") + decimal(layers);
    }
    if (total == model_.layers) return;
    misfits("parallel.stage_layers", "the sum must be model.layers: " + sum + " = " +
                                         decimal(total) + " != " + decimal(model_.layers));
  }

  // Gradients that are summed over replicas pass through memory.
  void check_nvme_gradients() {
    if (run_.offload.gradients != Tier::kNvme) return;
    std::string why;
    const bool of_norms = mesh_.sequence && mesh_.tensor > 1;
    if (of_norms) {
      why = "with parallel.sequence each tensor-parallel rank has a part of the gradients of norms";
    } else if (mesh_.tensor > model_.kv_heads) {
      why = "tensor > model.kv_heads (" + decimal(mesh_.tensor) + " > " + decimal(model_.kv_heads) +
            "): ranks that share a key head have a part of its gradients each";
    } else if (mesh_.pipeline > 1 && model_.tie_embeddings) {
      why =
          "with parallel.pipeline the first and the last stage have a part each of the gradient "
          "of tied embeddings";
    } else {
      return;
    }
    why = "nvme: " + why +
          ", and these are added up in memory; keep gradients on the host or the device";
    broken_.push_back({"offload.gradients", std::move(why), /*of_model=*/!of_norms});
  }

  const RunConfig& run_;
  const ParallelOptions& mesh_;
  const ModelOptions model_;
  std::vector<BrokenRule> broken_;
};

}  // namespace

std::vector<BrokenRule> broken_parallel_rules(const RunConfig& run) {
  return ParallelRules(run).check_all();
}

}  // namespace sluice
