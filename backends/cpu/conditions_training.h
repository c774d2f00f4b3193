// Conditions of losses, norms with several outputs, backward ops, optimiser steps and random ops.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_CONDITIONS_TRAINING_H_
#define BACKENDS_CPU_CONDITIONS_TRAINING_H_

#include "checks.h"

namespace hal::cpu {

Answer layer_norm_fits(const Desc& d);
Answer log_softmax_fits(const Desc& d);
Answer softmax_backward_fits(const Desc& d);
Answer log_softmax_backward_fits(const Desc& d);
Answer rms_norm_backward_fits(const Desc& d);
Answer layer_norm_backward_fits(const Desc& d);
Answer cross_entropy_fits(const Desc& d);
Answer cross_entropy_backward_fits(const Desc& d);
Answer attention_backward_fits(const Desc& d);
Answer adamw_step_fits(const Desc& d);
Answer random_floats_fit(const Desc& d);
Answer random_integers_fit(const Desc& d);
Answer dropout_fits(const Desc& d);

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_CONDITIONS_TRAINING_H_
