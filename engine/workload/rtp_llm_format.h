// RTP-LLM's online logs (JSON lines): ts in ms, il and ol tokens, bh, one string for each full 1024
// tokens of the prompt, and priority. The prompt's rest is the request's own.
//
// The source does not say which end of `priority` is more urgent. Tally takes the value as it is,
// so lower goes first: 30 before 50 before 70 under the priority policy. An ol of 0 (the request
// was sent on without decoding) becomes 1: the token that the prefill samples.
#ifndef TALLY_ENGINE_WORKLOAD_RTP_LLM_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_RTP_LLM_FORMAT_H_

#include <memory>

#include "engine/workload/row_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeRtpLlmFormat(const FormatOptions& options);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_RTP_LLM_FORMAT_H_
