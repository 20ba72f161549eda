"""The real vLLM scheduler behind the commands of the trace format."""

import prometheus_client
import torch
import vllm
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import (
    RepetitionDetectionParams,
    SamplingParams,
    StructuredOutputsParams,
)
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

import answers
import canonical_order
from clock import VirtualClock
from grammar import ScriptedGrammar
from trace_file import Json, plain
from vllm_setup import make_setup

REFERENCE = f"vllm {vllm.__version__}"

# An answer keeps so much of an error's text.
_MESSAGE_LENGTH = 200

# Any grammar: nothing compiles it, since the request waits for `grammar_ready`.
_ANY_GRAMMAR = ".*"


class Engine:
    """Scheduler, output processor and Prometheus logger of one engine, without a model.

    Whoever holds it stands for the model and for the workers: `update` brings what they give. All
    engines of a process share the clock.
    """

    def __init__(self, config: Json, model_directory: str, clock: VirtualClock) -> None:
        self._clock = clock
        setup = make_setup(config, model_directory)
        init_none_hash(sha256_cbor)
        self._block_hasher = get_request_block_hasher(config["block_size"], sha256_cbor)
        scheduler_class = AsyncScheduler if config.get("async_scheduling") else Scheduler
        self.scheduler: Scheduler = scheduler_class(
            vllm_config=setup.vllm_config,
            kv_cache_config=setup.kv_cache_config,
            structured_output_manager=StructuredOutputManager(setup.vllm_config),
            block_size=config["block_size"],
            log_stats=True,
        )
        self._set_encoder(config)
        canonical_order.fix_order(self.scheduler)
        self._kv_events: list = []
        self.scheduler.kv_event_publisher.publish = lambda batch: self._kv_events.extend(
            batch.events
        )
        self._front_end = OutputProcessor(tokenizer=None, log_stats=True)
        self._prometheus = PrometheusStatLogger(setup.vllm_config, [0])
        # Schedules that have no update yet, oldest first.
        self._outstanding: list[SchedulerOutput] = []
        self._commands = {
            "add": self._add,
            "schedule": self._schedule,
            "update": self._update,
            "abort": self._abort,
            "grammar_ready": self._grammar_ready,
            "reset_prefix_cache": self._reset_prefix_cache,
            "pause": self._pause,
            "state": self._state,
            "metrics": self._metrics,
        }

    def handle(self, command: Json) -> Json:
        """Carries out one command. An exception of vLLM becomes the answer that ends a trace."""
        self._clock.now = command.get("t", self._clock.now)
        try:
            return self._commands[command["op"]](command)
        except Exception as error:  # whatever vLLM raises is what the trace records
            return {"error": type(error).__name__, "message": str(error)[:_MESSAGE_LENGTH]}

    def _set_encoder(self, config: Json) -> None:
        """Gives the scheduler the encoder's limits, which a multimodal model would bring."""
        scheduler = self.scheduler
        encoder_decoder = config.get("encoder_decoder", False)
        scheduler.is_encoder_decoder = encoder_decoder
        if config.get("encoder_budget") or encoder_decoder:
            scheduler.max_num_encoder_input_tokens = config["encoder_budget"]
            manager = EncoderDecoderCacheManager if encoder_decoder else EncoderCacheManager
            scheduler.encoder_cache_manager = manager(cache_size=config["encoder_cache_size"])
        if not encoder_decoder:  # there vLLM itself sets it
            scheduler.scheduler_config.disable_chunked_mm_input = config.get(
                "disable_chunked_mm_input", False
            )

    def _add(self, command: Json) -> Json:
        pooling = command.get("pooling", False)
        lora = command.get("lora")
        core_request = EngineCoreRequest(
            request_id=command["id"],
            prompt_token_ids=list(command["prompt"]),
            mm_features=_encoder_inputs(command),
            sampling_params=None if pooling else _sampling_params(command),
            pooling_params=PoolingParams(task="embed") if pooling else None,
            arrival_time=command.get("arrival", self._clock.now),
            lora_request=LoRARequest(f"lora{lora}", lora, "unused") if lora else None,
            cache_salt=command.get("cache_salt"),
            data_parallel_rank=None,
            priority=command.get("priority", 0),
            client_index=0,
            resumable=command.get("resumable", False),
        )
        core_request.external_req_id = command["id"]
        self._front_end.add_request(core_request, None)
        # As across processes: a session's prompt is extended by both sides, each in its own list.
        core_request.prompt_token_ids = list(command["prompt"])
        self.scheduler.add_request(
            Request.from_engine_core_request(core_request, self._block_hasher)
        )
        return {}

    def _schedule(self, command: Json) -> Json:
        output = self.scheduler.schedule()
        self._outstanding.append(output)
        return answers.schedule_answer(output, self.scheduler)

    def _update(self, command: Json) -> Json:
        scheduled = self._outstanding.pop(0)
        rejecting = self._grammars(command.get("grammar_rejects", ()))
        for grammar in rejecting:
            grammar.rejecting = True
        core_outputs = self.scheduler.update_from_output(
            scheduled, _runner_output(command, scheduled)
        )
        for grammar in rejecting:
            grammar.rejecting = False
        if "drafts" in command:
            drafts = command["drafts"]
            self.scheduler.update_draft_token_ids(
                DraftTokenIds(list(drafts), [list(tokens) for tokens in drafts.values()])
            )
        return self._tell_front_end(core_outputs)

    def _tell_front_end(self, core_outputs) -> Json:
        answer: Json = {"outputs": []}
        if self._kv_events:
            answer["events"] = [answers.kv_event(event) for event in self._kv_events]
            self._kv_events.clear()
        for outputs in core_outputs.values():
            outputs.timestamp = self._clock.now
            # As the asynchronous front end: a step without outputs makes no iteration statistics.
            iteration = IterationStats() if outputs.outputs else None
            answer["outputs"] += [answers.output_row(output) for output in outputs.outputs]
            if iteration is not None:
                self._front_end.process_outputs(outputs.outputs, outputs.timestamp, iteration)
            self._front_end.update_scheduler_stats(outputs.scheduler_stats)
            self._prometheus.record(outputs.scheduler_stats, iteration)
            if outputs.scheduler_stats is not None:
                answer["stats"] = answers.stats_answer(outputs.scheduler_stats)
        answer["free_blocks"] = answers.free_blocks(self.scheduler)
        return answer

    def _abort(self, command: Json) -> Json:
        self._front_end.abort_requests(command["ids"], internal=True)
        aborted = self.scheduler.finish_requests(
            list(command["ids"]), RequestStatus.FINISHED_ABORTED
        )
        return {"aborted": sorted(request_id for request_id, _ in aborted)}

    def _grammar_ready(self, command: Json) -> Json:
        for request in self._structured_requests(command["ids"]):
            request.grammar = ScriptedGrammar()
        return {}

    def _structured_requests(self, request_ids) -> list:
        """The structured output requests of those ids that the scheduler still has."""
        requests = [self.scheduler.requests.get(request_id) for request_id in request_ids]
        return [
            request.structured_output_request
            for request in requests
            if request is not None and request.structured_output_request is not None
        ]

    def _grammars(self, request_ids) -> list[ScriptedGrammar]:
        return [
            request.grammar
            for request in self._structured_requests(request_ids)
            if request.grammar is not None
        ]

    def _reset_prefix_cache(self, command: Json) -> Json:
        done = self.scheduler.reset_prefix_cache(
            reset_running_requests=command.get("running", False)
        )
        return {"ok": bool(done)}

    def _pause(self, command: Json) -> Json:
        self.scheduler.set_pause_state(PauseState[command["state"].upper()])
        return {}

    def _state(self, command: Json) -> Json:
        return {
            "requests": {
                request.request_id: {
                    "status": request.status.name.lower(),
                    "computed": request.num_computed_tokens,
                    "tokens": request.num_tokens,
                    "preemptions": request.num_preemptions,
                }
                for request in self.scheduler.requests.values()
            },
            "unfinished": self.scheduler.get_num_unfinished_requests(),
            "free_blocks": answers.free_blocks(self.scheduler),
        }

    def _metrics(self, command: Json) -> Json:
        values = {}
        for family in prometheus_client.REGISTRY.collect():
            if not family.name.startswith("vllm:"):
                continue
            for sample in family.samples:
                if sample.name.endswith("_created") or sample.name == "vllm:cache_config_info":
                    continue
                labels = ",".join(
                    f'{name}="{value}"'
                    for name, value in sorted(sample.labels.items())
                    if name not in ("model_name", "engine")
                )
                if sample.value:
                    values[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return {"metrics": values}


def _sampling_params(command: Json) -> SamplingParams:
    ignore_eos = command.get("ignore_eos", False)
    params = SamplingParams(
        max_tokens=command["max_tokens"],
        min_tokens=command.get("min_tokens", 0),
        ignore_eos=ignore_eos,
        stop_token_ids=command.get("stop_token_ids") or None,
        detokenize=False,
        structured_outputs=(
            StructuredOutputsParams(regex=_ANY_GRAMMAR) if command.get("grammar") else None
        ),
        # The connector may write in it, so it gets its own copy.
        extra_args={"kv_transfer_params": plain(command["kv"])} if command.get("kv") else None,
    )
    if command.get("repetition"):
        params.repetition_detection = RepetitionDetectionParams(**command["repetition"])
    if command.get("skip_reading_prefix_cache"):
        params.skip_reading_prefix_cache = True
    if command.get("eos") is not None and not ignore_eos:
        params.update_from_generation_config({}, command["eos"])
    return params


def _encoder_inputs(command: Json) -> list[MultiModalFeatureSpec] | None:
    inputs = command.get("encoder_inputs")
    if not inputs:
        return None
    return [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=item["hash"],
            mm_hash=item["hash"],
            mm_position=PlaceholderRange(offset=item["offset"], length=item["length"]),
        )
        for item in inputs
    ]


def _runner_output(command: Json, scheduled: SchedulerOutput) -> ModelRunnerOutput:
    """What the model and the workers give for the step `scheduled`, as `command` tells it."""
    request_ids = list(scheduled.num_scheduled_tokens)
    sampled = command.get("sampled", {})
    pooled = command.get("pooled", ())
    transfers = None
    if any(name in command for name in ("finished_recving", "finished_sending", "invalid_blocks")):
        transfers = KVConnectorOutput(
            # Lists instead of sets: walked in the order given.
            finished_sending=list(command.get("finished_sending", ())) or None,
            finished_recving=list(command.get("finished_recving", ())) or None,
            invalid_block_ids=set(command.get("invalid_blocks", ())),
        )
    return ModelRunnerOutput(
        req_ids=request_ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
        sampled_token_ids=[list(sampled.get(request_id, ())) for request_id in request_ids],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=(
            [torch.zeros(1) if request_id in pooled else None for request_id in request_ids]
            if pooled
            else []
        ),
        kv_connector_output=transfers,
    )
