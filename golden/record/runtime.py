"""What has to hold in the process before vLLM is imported."""

import logging
import os
import sys

_HASH_SEED = "0"

_SETTINGS = {
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "HF_HUB_OFFLINE": "1",
    # Block hashes in KV events as bytes, not cut to 64 bits.
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
    # What NIXL's answers to the client name; nothing listens there.
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "localhost",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
}


def prepare() -> None:
    """Sets the environment for vLLM; starts the process again if its hash seed is another one.

    The parent of a first block's hash is the hash of the seed's text, and upstream walks a few sets
    in the order that the seed gives.
    """
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.argv])
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.disable(logging.CRITICAL)


def replace_accelerator() -> None:
    """Makes torch's calls to an accelerator do nothing, for a model on the CPU.

    The wheel's torch is built for CUDA and fails in them when there is no device. The engine's
    worker, a process of its own, needs it too.
    """
    import torch

    torch.accelerator.synchronize = lambda *args, **kwargs: None
    torch.accelerator.empty_cache = lambda *args, **kwargs: None
